"""Wrong options, and wrong certificates, keys, tokens and kubeconfigs in files."""

from __future__ import annotations

from tests.integration.differential.rows import STARTS, Difference, Table, start

_OWN_WORDS = "Tower's text names the cure; kube-apiserver's is that of Go's parser"
_NUMBER = Difference("strconv.ParseInt", "is not a", _OWN_WORDS)
_BOOLEAN = Difference("strconv.ParseBool", "is not a boolean: give true or false", _OWN_WORDS)
_DURATION = Difference("time: ", "is not a duration: give numbers with units", _OWN_WORDS)
_MISSING = Difference(
    "failed to load SNI cert and key: open", "--tls-sni-cert-key: open", "Tower names the option instead"
)
_NO_EFFECT = "without the other option, this one would silently have no effect"
_INSECURE = "kube-apiserver warns: no forward secrecy, or weak ciphers"
_NO_FRONT_PROXY = Difference(STARTS, "requires --requestheader-client-ca-file", _NO_EFFECT)
_NO_NAMES = Difference(STARTS, "requires --requestheader-username-headers", _NO_EFFECT)
_KUBECONFIG = Difference(
    "invalid configuration: ", "kubeconfig ", "Tower parses kubeconfigs itself, and names what is missing"
)
_NO_KUBECONFIG = Difference("no such file or directory", "No such file or directory", _KUBECONFIG.why)
_NO_LOGIN = Difference(STARTS, "user '': must be 1 to 253 printable characters", "a user needs a name")

_X = "--external-hostname=a"
_RH = "--requestheader-client-ca-file={f}/ca.crt"
_RU = "--requestheader-username-headers=X-Remote-User"
_OIDC, _CLIENT = "--oidc-issuer-url=https://a", "--oidc-client-id=a"
_HOOK = "--authentication-token-webhook-config-file={d}/hook"
_RULES = "--authorization-webhook-config-file={d}/hook"
_ISSUER = "--service-account-issuer=https://a"
_KEYS = "--service-account-key-file={f}/sa.pub"

_CONTEXT = """apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]
users: [{name: a, user: {}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
"""
_BAD_PEM = "-----BEGIN {0}-----\nAAAA\n-----END {0}-----\n"
_BAD_CERTIFICATE = _BAD_PEM.format("CERTIFICATE")

OPTIONS = Table(
    "Options",
    [
        start("--max-requests-inflight=-1"),
        start("--max-requests-inflight=x", other=_NUMBER),
        start("--max-mutating-requests-inflight=-1"),
        start("--max-requests-inflight=-1", "--max-mutating-requests-inflight=-5"),
        start("--max-requests-inflight=-1", "--authorization-mode=X"),
        start("--min-request-timeout=-1", "--max-requests-inflight=-1", "--authorization-mode=ABAC,X"),
        start(
            "--max-requests-inflight=0",
            "--max-mutating-requests-inflight=0",
            other=Difference(
                "they must add up to something positive",
                STARTS,
                "0 means no limit, as in kube-apiserver without API Priority and Fairness",
            ),
        ),
        start("--min-request-timeout=-1"),
        start(
            "--min-request-timeout=0",
            other=Difference(
                STARTS, "ends each watch at once", "clients would restart their watches all the time"
            ),
        ),
        start("--request-timeout=-1s"),
        start("--request-timeout=5", other=_DURATION),
        start("--request-timeout=x", other=_DURATION),
        start(
            "--request-timeout=0",
            other=Difference(
                STARTS,
                "must be more than 0",
                "a request that never ends would count for ever as one in flight",
            ),
        ),
        start("--shutdown-delay-duration=-1s"),
        start("--request-timeout=-1s", "--min-request-timeout=-1", "--shutdown-delay-duration=-1s"),
        start("--cors-allowed-origins=^a"),
        start("--cors-allowed-origins=example.com$"),
        start("--cors-allowed-origins=^https://a$,b"),
        start(
            "--cors-allowed-origins=^https://a",
            other=Difference(
                STARTS,
                "does not pin to start/end of host in the origin header",
                "it also matches `https://a.evil.example` (CVE-2022-1996)",
            ),
        ),
        start(
            "--cors-allowed-origins=(",
            other=Difference(
                "missing closing )",
                "missing ), unterminated subpattern",
                "another regular expression library",
            ),
        ),
        start("--advertise-address=x"),
        start(
            "--advertise-address=0.0.0.0",
            other=Difference(
                STARTS,
                "is not the address of a machine",
                "kube-apiserver then uses the address of an interface",
            ),
        ),
        start(
            "--external-hostname=a:1",
            other=Difference(STARTS, "is not a host", "kubeconfigs combine the name with the proxy's port"),
        ),
        start(
            "--cert-dir={d}/serving",
            "--external-hostname=192.0.2.1",
            other=Difference(
                STARTS,
                "requires the host name that it is for",
                "clients that use an address get a certificate of Tower's CA",
            ),
        ),
        start("--secure-port=0"),
        start("--secure-port=-1"),
        start("--secure-port=65536"),
        start("--secure-port=x", other=_NUMBER),
        start("--anonymous-auth=x", other=_BOOLEAN),
        start("--profiling=x", other=_BOOLEAN),
        *(
            start(option, other=_BOOLEAN)
            for option in (
                "--anonymous-auth=",
                "--anonymous-auth=yes",
                "--anonymous-auth=tRUE",
                "--profiling=on",
                "--audit-log-truncate-enabled=no",
                "--audit-webhook-batch-throttle-enable=yes",
            )
        ),
        *(start(f"--profiling={value}") for value in ("1", "T", "TRUE", "f", "False")),
        start(
            "--nothing",
            other=Difference(
                "unknown flag: --nothing",
                "--nothing is not an option of tower-proxy",
                "Tower's text also names a similar option, if there is one",
            ),
        ),
        start(
            "--max-requests-inflight",
            other=Difference("flag needs an argument", "requires a value", _OWN_WORDS),
        ),
        *(
            start(f"--{name}=")
            for name in (
                "advertise-address",
                "api-audiences",
                "audit-policy-file",
                "audit-webhook-config-file",
                "authentication-config",
                "authentication-token-webhook-config-file",
                "authorization-policy-file",
                "authorization-webhook-config-file",
                "bind-address",
                "cert-dir",
                "client-ca-file",
                "cors-allowed-origins",
                "external-hostname",
                "kubelet-certificate-authority",
                "oidc-ca-file",
                "oidc-issuer-url",
                "requestheader-allowed-names",
                "requestheader-client-ca-file",
                "requestheader-extra-headers-prefix",
                "requestheader-group-headers",
                "requestheader-uid-headers",
                "requestheader-username-headers",
                "service-account-jwks-uri",
                "tls-cert-file",
                "tls-cipher-suites",
                "tls-min-version",
                "token-auth-file",
            )
        ),
        start("--tls-cert-file=", "--tls-private-key-file="),
        start(_RH, _RU, "--requestheader-allowed-names="),
        start(_OIDC, _CLIENT, "--oidc-ca-file=", "--oidc-signing-algs="),
        start("--external-hostname=a."),
        start("--api-audiences=a", "--api-audiences=b"),
        start("--authorization-mode=", "--authorization-mode=RBAC"),
        start("--authorization-mode=RBAC", "--authorization-mode="),
        start("--authorization-mode=RBAC", "--authorization-mode=RBAC"),
        start("--authorization-mode=Foo", "--authorization-mode=RBAC"),
        start("--cors-allowed-origins=a", "--cors-allowed-origins=^b$"),
        start("--tls-cipher-suites=FOO", "--tls-cipher-suites=TLS_AES_128_GCM_SHA256"),
        start("--tls-cipher-suites=FOO", "--tls-cipher-suites=BAR"),
        start(_OIDC, _CLIENT, "--oidc-signing-algs=FOO", "--oidc-signing-algs=RS256"),
        start(_RH, "--requestheader-username-headers=,", _RU),
        start(_RH, _RU, "--requestheader-group-headers=,", "--requestheader-group-headers=a"),
        start(_RH, _RU, "--requestheader-extra-headers-prefix=,", "--requestheader-extra-headers-prefix=a"),
        start(
            "--client-ca-file={f}/none",
            "--client-ca-file={f}/ca.crt",
            other=Difference(
                STARTS,
                "no such file",
                "Tower uses the CAs of all files, so all must exist; kube-apiserver uses only the last one",
            ),
        ),
        start("--tls-min-version=VersionTLS14"),
        start("--tls-min-version=TLS12"),
        start(
            "--tls-min-version=VersionTLS10",
            other=Difference(STARTS, "is not secure (RFC 8996)", "old versions of TLS are not available"),
        ),
        *(
            start(
                f"--tls-cipher-suites={name}",
                other=Difference(STARTS, f"cipher suite {name} is insecure", _INSECURE),
            )
            for name in (
                "TLS_RSA_WITH_AES_128_GCM_SHA256",
                "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
                "TLS_RSA_WITH_RC4_128_SHA",
            )
        ),
        start("--tls-cipher-suites=FOO"),
        start("--tls-cipher-suites=TLS_AES_128_GCM_SHA256,FOO"),
        start("--tls-sni-cert-key=a.crt"),
        start("--tls-sni-cert-key=a,b,c"),
        start("--tls-sni-cert-key={f}/ca.crt,{f}/ca.key:"),
        start(
            "--tls-sni-cert-key={f}/ca.crt,{f}/ca.key:*.*",
            other=Difference(STARTS, "has the name '*.*'", "no client could request such a name"),
        ),
        start(
            "--tls-sni-cert-key={f}/ca.crt,{f}/ca.key:10.0.0.1",
            other=Difference(
                STARTS,
                "clients do not send addresses",
                "RFC 6066 allows only host names; it would never be used",
            ),
        ),
        start(_RU, other=_NO_FRONT_PROXY),
        start("--requestheader-allowed-names=a", other=_NO_FRONT_PROXY),
        start(_RH, other=_NO_NAMES),
        start(_RH, "--requestheader-username-headers= "),
        start(
            _RH,
            "--requestheader-username-headers=a,",
            "--requestheader-group-headers=,",
            "--requestheader-extra-headers-prefix=,",
        ),
        start(
            _RH,
            "--requestheader-username-headers=Authorization",
            other=Difference(
                STARTS,
                "a header field with another meaning",
                "this field carries credentials, not names",
            ),
        ),
        start(_RH, _RU, "--client-ca-file={f}/ca.crt"),
        start("--service-account-issuer=", _KEYS),
        start("--service-account-issuer=", "--service-account-issuer=", _KEYS),
        start(_ISSUER, _ISSUER, _KEYS),
        *(
            start(f"--service-account-issuer={url}", _KEYS)
            for url in (
                ":",
                ":a",
                "a b:",
                "1a:b",
                "http://a b:",
                "https://a:x",
                "https://a/%zz",
                "https://[::1",
            )
        ),
        *(
            start(_ISSUER, f"--service-account-jwks-uri={url}")
            for url in (
                "http://a/",
                "/a",
                "a",
                ":",
                "https://a:x",
                "https://a b/",
                "https://[::1/",
                "%zz://a",
            )
        ),
        start(
            "--api-audiences=a,",
            other=Difference(STARTS, "has an empty audience", "no token could be for it"),
        ),
        start("--authentication-token-webhook-cache-ttl=x", other=_DURATION),
        start(_HOOK, "--authentication-token-webhook-version=v2", hook=_CONTEXT),
        start("--authorization-mode=Foo"),
        start("--authorization-mode=rbac"),
        start("--authorization-mode=RBAC,RBAC"),
        start("--authorization-mode=RBAC,Foo,RBAC"),
        start("--authorization-mode=ABAC"),
        start("--authorization-mode=Webhook"),
        start("--authorization-mode=ABAC,Webhook"),
        start("--authorization-mode=RBAC,Foo,Bar,ABAC,ABAC"),
        start("--authorization-policy-file=x"),
        start("--authorization-webhook-config-file=x"),
        start("--authorization-policy-file=x", "--authorization-webhook-config-file=x"),
        start(
            "--authorization-mode=",
            other=Difference(
                STARTS, 'authorization-mode "" is not a valid mode', "an empty list is probably a mistake"
            ),
        ),
        start("--authorization-mode=Webhook", _RULES, "--authorization-webhook-version=v2", hook=_CONTEXT),
        start(
            "--audit-policy-file={d}/policy",
            other=Difference(
                STARTS,
                "--audit-policy-file has no effect without --audit-log-path or --audit-webhook-config-file",
                "without a backend, nothing would be recorded",
            ),
            policy="apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n",
        ),
        start("--audit-log-path={d}/log", "--audit-log-mode=x"),
        start("--audit-log-path={d}/log", "--audit-log-format=xml"),
        start("--audit-log-path={d}/log", "--audit-log-version=x/v3"),
        start("--audit-log-path={d}/log", "--audit-log-maxage=-1"),
        start("--audit-log-path={d}/log", "--audit-log-maxbackup=-2", "--audit-log-maxsize=-3"),
        start("--audit-log-path={d}/log", "--audit-log-truncate-max-event-size=0"),
        start(
            "--audit-log-path={d}/log",
            "--audit-log-truncate-max-event-size=5",
            "--audit-log-truncate-max-batch-size=4",
        ),
        start(
            "--audit-log-path={d}/log",
            "--audit-log-mode=x",
            "--audit-log-format=xml",
            "--audit-log-maxage=-1",
        ),
        *(
            start("--audit-webhook-config-file=/hook", option)
            for option in (
                "--audit-webhook-mode=x",
                "--audit-webhook-version=foo",
                "--audit-webhook-batch-buffer-size=0",
                "--audit-webhook-batch-max-size=0",
                "--audit-webhook-batch-throttle-qps=0",
                "--audit-webhook-batch-throttle-burst=0",
                "--audit-webhook-truncate-max-event-size=-1",
            )
        ),
    ],
)

FILES = Table(
    "Files of certificates, keys, tokens and webhooks",
    [
        start("--tls-cert-file={f}/ca.crt"),
        start("--tls-private-key-file={f}/ca.key"),
        start("--tls-cert-file={f}/none", "--tls-private-key-file={f}/ca.key", _X),
        start("--tls-cert-file={f}/ca.crt", "--tls-private-key-file={f}/other.key", _X),
        start("--tls-cert-file={f}/ca.key", "--tls-private-key-file={f}/ca.key", _X),
        start("--tls-cert-file={f}/ca.crt", "--tls-private-key-file={f}/ca.crt", _X),
        start("--tls-cert-file={d}/crt", "--tls-private-key-file={f}/ca.key", _X, note="text", crt="hi"),
        start("--tls-cert-file={f}/ca.crt", "--tls-private-key-file={d}/key", _X, note="text", key="hi"),
        start("--tls-cert-file={f}/ca.crt", "--tls-private-key-file={f}/rsa.key", _X),
        start(
            "--tls-cert-file={d}/crt",
            "--tls-private-key-file={f}/ca.key",
            _X,
            note="garbage",
            crt=_BAD_CERTIFICATE,
        ),
        start("--tls-sni-cert-key={f}/ca.crt,{f}/other.key"),
        start("--tls-sni-cert-key={f}/ca.key,{f}/ca.key"),
        start("--tls-sni-cert-key={f}/none,{f}/ca.key", other=_MISSING),
        start("--client-ca-file={f}/none"),
        start("--client-ca-file={f}"),
        start("--client-ca-file={d}/ca", note="empty", ca=""),
        start("--client-ca-file={d}/ca", note="text", ca="hello"),
        start("--client-ca-file={d}/ca", note="garbage", ca=_BAD_CERTIFICATE),
        start("--client-ca-file={f}/ca.key"),
        start(_RU, "--requestheader-client-ca-file={f}/none"),
        start(_RU, "--requestheader-client-ca-file={d}/ca", note="empty", ca=""),
        start(_RU, "--requestheader-client-ca-file={d}/ca", note="text", ca="x"),
        start("--token-auth-file={f}/none"),
        *(
            start("--token-auth-file={d}/csv", note=note, csv=text)
            for note, text in (
                ("two columns", "t,jane"),
                ("one column", "a\n"),
                ("blank", " \n"),
                ("two columns later", "t,jane,1\nt2,bob"),
                ("semicolons", "t;jane;1"),
                ("bare quote", 't,ja"ne,1'),
                ("open quote", 't,jane,1,"a,b'),
                ("text after a quote", 't,jane,1,"a" b'),
                ("a quote over two lines", '"t",\n"a\nb'),
            )
        ),
        start("--token-auth-file={d}/csv", note="no user", csv="t,,1", other=_NO_LOGIN),
        start(_ISSUER, "--service-account-key-file={f}/none"),
        start(_ISSUER, "--service-account-key-file={d}/key", note="empty", key=""),
        start(_ISSUER, "--service-account-key-file={d}/key", note="text", key="hi"),
        start(
            _ISSUER, "--service-account-key-file={d}/key", note="garbage", key=_BAD_PEM.format("PUBLIC KEY")
        ),
        start(_HOOK.replace("{d}/hook", "{f}/none"), other=_NO_KUBECONFIG),
        start(_HOOK, note="empty", hook="", other=_KUBECONFIG),
        start(_HOOK, note="another YAML", hook="a: b", other=_KUBECONFIG),
        start(
            _HOOK,
            note="a context that is missing",
            hook="kind: Config\ncurrent-context: x\n",
            other=_KUBECONFIG,
        ),
        start("--authorization-mode=Webhook", _RULES, note="empty", hook="", other=_KUBECONFIG),
    ],
)
