"""The fields of ``AuthenticationConfiguration`` (apiserver.config.k8s.io/v1)."""

from __future__ import annotations

from tower.web.access.authentication.oidc.decoding import ListOf, Struct

KIND = "AuthenticationConfiguration"

_PREFIXED = Struct("PrefixedClaimOrExpression", dict.fromkeys(("claim", "prefix", "expression"), str))

_CONDITION = Struct("AnonymousAuthCondition", {"path": str})

#: The whole file.
SCHEMA = Struct(
    KIND,
    {
        "apiVersion": str,
        "kind": str,
        "anonymous": Struct("AnonymousAuthConfig", {"enabled": bool, "conditions": ListOf(_CONDITION)}),
        "jwt": ListOf(
            Struct(
                "JWTAuthenticator",
                {
                    "issuer": Struct(
                        "Issuer",
                        {
                            "url": str,
                            "discoveryURL": str,
                            "certificateAuthority": str,
                            "audiences": ListOf(str),
                            "audienceMatchPolicy": str,
                            "egressSelectorType": str,
                        },
                    ),
                    "claimValidationRules": ListOf(
                        Struct(
                            "ClaimValidationRule",
                            dict.fromkeys(("claim", "requiredValue", "expression", "message"), str),
                        )
                    ),
                    "claimMappings": Struct(
                        "ClaimMappings",
                        {
                            "username": _PREFIXED,
                            "groups": _PREFIXED,
                            "uid": Struct("ClaimOrExpression", {"claim": str, "expression": str}),
                            "extra": ListOf(Struct("ExtraMapping", {"key": str, "valueExpression": str})),
                        },
                    ),
                    "userValidationRules": ListOf(
                        Struct("UserValidationRule", {"expression": str, "message": str})
                    ),
                },
            )
        ),
    },
)
