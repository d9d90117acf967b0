"""Tables of mistakes for a real kube-apiserver and Tower, which must answer alike.

`test_bad_options` starts both with the options and files of `STARTING`, and `test_as_kube_apiserver` sends
both the requests of `ASKING`.  A row whose answers differ on purpose has a `Difference`; all these are in
``docs/kube-apiserver-differences.md``, made by ``python -m tests.integration.differential``.
"""

from collections.abc import Sequence

from tests.integration.differential.asks import Ask
from tests.integration.differential.certificates import CERTIFICATES, FRONT_PROXIES
from tests.integration.differential.impersonation import IMPERSONATION, RIGHTS
from tests.integration.differential.issuers import ISSUERS, OPTIONS_OF_ISSUERS
from tests.integration.differential.options import FILES, OPTIONS
from tests.integration.differential.policies import ABAC_FILES, AUDIT_POLICIES
from tests.integration.differential.rbac_objects import ESCALATION, OBJECTS
from tests.integration.differential.rows import Start, Table
from tests.integration.differential.tokens import ACCOUNTS, HEADERS, REVIEWS

STARTING: Sequence[Table[Start]] = (
    OPTIONS,
    OPTIONS_OF_ISSUERS,
    ISSUERS,
    FILES,
    ABAC_FILES,
    AUDIT_POLICIES,
)

ASKING: Sequence[Table[Ask]] = (
    HEADERS,
    ACCOUNTS,
    REVIEWS,
    CERTIFICATES,
    FRONT_PROXIES,
    IMPERSONATION,
    RIGHTS,
    OBJECTS,
    ESCALATION,
)

#: All tables.
TABLES: Sequence[Table[object]] = (*STARTING, *ASKING)
