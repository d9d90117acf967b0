"""The file of ``--authentication-config``: Kubernetes' ``AuthenticationConfiguration``, with its errors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from typing import Any

import yaml
from attrs import frozen

from tower.options.strict_yaml import load_strictly
from tower.web.access.authentication.oidc.configuration_checks import (
    authorities_problem,
    key_problems,
    url_problems,
)
from tower.web.access.authentication.oidc.configuration_schema import KIND, SCHEMA
from tower.web.access.authentication.oidc.decoding import check_strictly
from tower.web.access.authentication.oidc.expression_values import ExpressionError
from tower.web.access.authentication.oidc.expressions import Expression, parsed_expression
from tower.web.access.authentication.oidc.issuer import (
    ALGORITHMS,
    ClaimSource,
    IssuerSettings,
    Source,
    ValidationRule,
)

#: Accepted versions of the file.
VERSIONS = ("apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1")

#: Largest file, B, and most issuers.
FILE_LIMIT = 1 << 20
ISSUERS_LIMIT = 64

_EITHER = "claim and expression can't both be set"
_NO_CEL = (
    "Tower supports a part of CEL (docs/authentication.md): use that, or claim, prefix and requiredValue"
)


@frozen
class AuthenticationConfiguration:
    """The content of the file.

    :ivar anonymous: paths of requests without a credential, empty for all paths; None: they are rejected.
    :ivar has_anonymous: whether the file decides about them.
    :ivar digest: of the content.
    """

    issuers: tuple[IssuerSettings, ...] = ()
    anonymous: tuple[str, ...] | None = None
    has_anonymous: bool = False
    digest: str = ""


def read_configuration(data: bytes, account_issuers: Collection[str] = ()) -> AuthenticationConfiguration:
    """Return the file's content.

    :param account_issuers: of service accounts' tokens, which no other issuer must have.
    :raise ValueError: with all problems in one line, each with its field.
    """
    content = _decoded(data)
    reader = _Reader(account_issuers)
    issuers = reader.issuers(content)
    anonymous = reader.anonymous(content.get("anonymous"))
    if reader.problems:
        problems = reader.problems
        shown = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        raise ValueError(f"invalid authentication configuration: {shown}")
    digest = f"sha256:{sha256(data).hexdigest()}"
    return AuthenticationConfiguration(issuers, anonymous, content.get("anonymous") is not None, digest)


def _decoded(data: bytes) -> dict[str, Any]:
    if not data:
        raise ValueError("empty config data: give an AuthenticationConfiguration")
    if len(data) > FILE_LIMIT:
        raise ValueError(f"has more than {FILE_LIMIT} B")
    try:
        content = load_strictly(data)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as e:
        raise ValueError(f"is not YAML: {' '.join(str(e).split())[:300]}") from None
    found = content if isinstance(content, dict) else {}
    for name, cure in (("apiVersion", VERSIONS[0]), ("kind", KIND)):
        if not found.get(name):
            raise ValueError(f"Object '{name}' is missing: give {name}: {cure}")
    if found["kind"] != KIND or found["apiVersion"] not in VERSIONS:
        raise ValueError(
            f'no kind "{found["kind"]}" is registered for version "{found["apiVersion"]}": '
            f"give kind: {KIND} and apiVersion: {VERSIONS[0]}"
        )
    check_strictly(found, SCHEMA)
    return found


class _Reader:
    """Reads the file and collects its problems.

    :ivar problems: each with its field, in kube-apiserver's form.
    """

    def __init__(self, account_issuers: Collection[str]) -> None:
        self.problems: list[str] = []
        self._account_issuers = account_issuers

    def anonymous(self, value: dict[str, Any] | None) -> tuple[str, ...] | None:
        """Return the paths of requests without a credential; None: there are no such requests."""
        if value is None:
            return None
        paths = tuple((each or {}).get("path") or "" for each in value.get("conditions") or ())
        if value.get("enabled"):
            return paths
        if paths:
            shown = ", ".join(paths)
            self._invalid(
                "anonymous.conditions", shown, "enabled should be set to true when conditions are defined"
            )
        return None

    def issuers(self, content: dict[str, Any]) -> tuple[IssuerSettings, ...]:
        """Return the issuers; incomplete if there are problems."""
        entries = content.get("jwt") or []
        if len(entries) > ISSUERS_LIMIT:
            self.problems.append(f"jwt: Too many: {len(entries)}: must have at most {ISSUERS_LIMIT} items")
            return ()
        found: list[IssuerSettings] = []
        for i, each in enumerate(entries):
            issuer = self._jwt(f"jwt[{i}]", each or {})
            for name, value, others in (
                ("url", issuer.url, [other.url for other in found]),
                ("discoveryURL", issuer.discovery_url, [other.discovery_url for other in found]),
            ):
                if value and value in others:
                    self._repeat(f"jwt[{i}].issuer.{name}", value)
            found.append(issuer)
        return tuple(found)

    def _jwt(self, path: str, entry: dict[str, Any]) -> IssuerSettings:
        issuer, at = entry.get("issuer") or {}, f"{path}.issuer"
        url, discovery = issuer.get("url") or "", issuer.get("discoveryURL") or ""
        if not url:
            self._require(f"{at}.url")
        else:
            if url in self._account_issuers:
                shown = " ".join(sorted(self._account_issuers))
                problem = f"URL must not overlap with disallowed issuers: [{shown}]"
                self._invalid(f"{at}.url", url, problem)
            self._check_url(f"{at}.url", url)
        if discovery:
            if url and url.rstrip("/") == discovery.rstrip("/"):
                self._invalid(f"{at}.discoveryURL", discovery, "discoveryURL must be different from URL")
            self._check_url(f"{at}.discoveryURL", discovery)
        audiences = self._audiences(at, issuer)
        authorities = (issuer.get("certificateAuthority") or "").encode()
        if authorities and (problem := authorities_problem(authorities)):
            self._invalid(f"{at}.certificateAuthority", "<omitted>", problem)
        if egress := issuer.get("egressSelectorType"):
            self._invalid(f"{at}.egressSelectorType", egress, "Tower has no egress selectors: omit it")
        required, rules = self._claim_rules(f"{path}.claimValidationRules", entry.get("claimValidationRules"))
        where, mappings = f"{path}.claimMappings", entry.get("claimMappings") or {}
        username = self._prefixed(f"{where}.username", mappings.get("username") or {}, required=True)
        groups = self._prefixed(f"{where}.groups", mappings.get("groups") or {}, required=False)
        uid = self._source(f"{where}.uid", mappings.get("uid") or {})
        extra = self._extra(f"{where}.extra", mappings.get("extra") or [])
        self._check_email(f"{where}.username.expression", username, extra, rules)
        return IssuerSettings(
            url,
            audiences,
            username or ClaimSource(""),
            groups,
            uid,
            extra,
            required,
            rules,
            self._user_rules(f"{path}.userValidationRules", entry.get("userValidationRules") or []),
            discovery,
            authorities=authorities,
            algorithms=ALGORITHMS,
        )

    def _check_url(self, path: str, url: str) -> None:
        for problem in url_problems(url):
            self._invalid(path, url, problem)

    def _audiences(self, at: str, issuer: dict[str, Any]) -> tuple[str, ...]:
        values, policy = issuer.get("audiences") or [], issuer.get("audienceMatchPolicy") or ""
        if not values:
            self._require(f"{at}.audiences", f"at least one {at}.audiences is required")
            return ()
        for i, value in enumerate(values):
            if not value:
                self._require(f"{at}.audiences[{i}]")
            elif value in values[:i]:
                self._repeat(f"{at}.audiences[{i}]", value)
        if policy != "MatchAny" and (policy or len(values) > 1):
            wanted = "empty or MatchAny for single audience"
            if len(values) > 1:
                wanted = "MatchAny for multiple audiences"
            self._invalid(f"{at}.audienceMatchPolicy", policy, f"audienceMatchPolicy must be {wanted}")
        return tuple(value or "" for value in values)

    def _claim_rules(
        self, path: str, entries: Sequence[Any] | None
    ) -> tuple[tuple[tuple[str, str], ...], tuple[ValidationRule, ...]]:
        required: dict[str, str] = {}
        rules: list[ValidationRule] = []
        for i, each in enumerate(entries or []):
            at, rule = f"{path}[{i}]", each or {}
            claim, value, text, message = (
                rule.get(name) or "" for name in ("claim", "requiredValue", "expression", "message")
            )
            if claim and text:
                self._invalid(at, claim, _EITHER)
            elif claim:
                if message:
                    self._invalid(f"{at}.message", message, "may not be specified when claim is set")
                if claim in required:
                    self._repeat(f"{at}.claim", claim)
                required[claim] = value
            elif text:
                if value:
                    problem = "may not be specified when expression is set"
                    self._invalid(f"{at}.requiredValue", value, problem)
                self._add_rule(f"{at}.expression", text, "claims", message, rules)
            else:
                self._require(at, "claim or expression is required")
        return tuple(required.items()), tuple(rules)

    def _user_rules(self, path: str, entries: Sequence[Any]) -> tuple[ValidationRule, ...]:
        rules: list[ValidationRule] = []
        for i, each in enumerate(entries):
            rule, at = each or {}, f"{path}[{i}].expression"
            text = rule.get("expression") or ""
            if text:
                self._add_rule(at, text, "user", rule.get("message") or "", rules)
            else:
                self._require(at)
        return tuple(rules)

    def _add_rule(
        self, path: str, text: str, variable: str, message: str, rules: list[ValidationRule]
    ) -> None:
        if text in [rule.expression.text for rule in rules]:
            self._repeat(path, text)
            return
        expression = self._expression(path, text, variable)
        if expression is not None:
            rules.append(ValidationRule(expression, message))

    def _prefixed(self, path: str, value: dict[str, Any], *, required: bool) -> Source | None:
        claim, prefix, text = (value.get(name) for name in ("claim", "prefix", "expression"))
        if claim and text:
            self._invalid(path, "", _EITHER)
        elif text:
            if prefix is not None:
                self._invalid(f"{path}.prefix", prefix, "may not be specified when expression is set")
            return self._expression(f"{path}.expression", text, "claims")
        elif claim:
            if prefix is None:
                self._require(
                    f"{path}.prefix",
                    "prefix is required when claim is set. It can be set to an empty string to disable "
                    "prefixing",
                )
            return ClaimSource(claim, prefix or "")
        elif required:
            self._require(path, "claim or expression is required")
        return None

    def _source(self, path: str, value: dict[str, Any]) -> Source | None:
        claim, text = value.get("claim"), value.get("expression")
        if claim and text:
            self._invalid(path, "", _EITHER)
        elif text:
            return self._expression(f"{path}.expression", text, "claims")
        return ClaimSource(claim) if claim else None

    def _extra(self, path: str, entries: Sequence[Any]) -> tuple[tuple[str, Expression], ...]:
        found: list[tuple[str, Expression]] = []
        keys: list[str] = []
        for i, each in enumerate(entries):
            entry, at = each or {}, f"{path}[{i}]"
            key, text = entry.get("key") or "", entry.get("valueExpression") or ""
            if not key:
                self._require(f"{at}.key")
            for problem in key_problems(key):
                self._invalid(f"{at}.key", key, problem)
            if key in keys:
                self._repeat(f"{at}.key", key)
                continue
            keys.append(key)
            if not text:
                self._require(f"{at}.valueExpression")
                continue
            expression = self._expression(f"{at}.valueExpression", text, "claims")
            if expression is not None:
                found.append((key, expression))
        return tuple(found)

    def _check_email(
        self,
        path: str,
        username: Source | None,
        extra: Iterable[tuple[str, Expression]],
        rules: Iterable[ValidationRule],
    ) -> None:
        """Check that an address is not used without a look at whether it was verified."""
        if not isinstance(username, Expression) or "email" not in username.text:
            return
        used = [username, *(each for _, each in extra), *(rule.expression for rule in rules)]
        if not any("email_verified" in each.text for each in used):
            self._invalid(
                path,
                username.text,
                "claims.email_verified must be used in claimMappings.username.expression or "
                "claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when "
                "claims.email is used in claimMappings.username.expression",
            )

    def _expression(self, path: str, text: str, variable: str) -> Expression | None:
        try:
            return parsed_expression(text, variable)
        except (ExpressionError, RecursionError) as e:
            self._invalid(path, text, f"the expression {e}: {_NO_CEL}")
            return None

    def _require(self, path: str, text: str = "") -> None:
        self.problems.append(f"{path}: Required value{': ' if text else ''}{text}")

    def _repeat(self, path: str, value: str) -> None:
        self.problems.append(f'{path}: Duplicate value: "{value[:200]}"')

    def _invalid(self, path: str, value: str, text: str) -> None:
        self.problems.append(f'{path}: Invalid value: "{value[:200]}": {text}')
