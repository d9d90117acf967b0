"""Tests of `tower.member.manifest.settings`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower import __version__
from tower.errors import Invalid
from tower.member.manifest.settings import AgentSettings, Joining


class SettingsTests(SynchronousTestCase):
    def test_image(self) -> None:
        """The default image is of this version; others are names of images."""
        self.assertTrue(AgentSettings().image.endswith(f":{__version__}"))
        for image in ("tower", "localhost:5000/a/tower:1.2.3", "tower@sha256:" + "0" * 64):
            AgentSettings(image)
        for image in ("", "a b", "-x", "tower\n", "x" * 513, "{}"):
            self.assertIn("image", str(self.assertRaises(Invalid, AgentSettings, image)))

    def test_names(self) -> None:
        """Names that cannot be impersonated, or that the agent rejects, are errors with the field."""
        AgentSettings(users=("jane", "joe@example.org"), groups=("oidc:dev",))
        for names in (("",), (" dev",), ("a\nb",), ("x" * 254,), ("system:masters",), ("kube:admin",)):
            error = self.assertRaises(Invalid, AgentSettings, groups=names)
            self.assertIn("impersonateGroups", str(error))
            self.assertNotIn("\n", str(error))
        many = tuple(map(str, range(201)))
        self.assertIn("201", str(self.assertRaises(Invalid, AgentSettings, groups=many)))

    def test_keys(self) -> None:
        """Keys of extra fields are printable and in lower case."""
        AgentSettings(extra=("example.org/team", "*"))
        for key in ("", " team", "a\nb", "Team"):
            error = self.assertRaises(Invalid, AgentSettings, extra=(key,))
            self.assertIn(f"impersonateExtra: {key!r}", str(error))
        self.assertIn("must be lower case: the API server compares keys in lower case", str(error))

    def test_users_alone(self) -> None:
        """Users without groups are an error: any group includes those of administrators."""
        error = self.assertRaises(Invalid, AgentSettings, users=("jane",))
        self.assertIn("requires impersonateGroups", str(error))

    def test_object(self) -> None:
        """The JSON object is read as the same settings; missing fields have their defaults."""
        settings = AgentSettings(
            *(
                "tower:1",
                ("jane",),
                ("dev", "ops"),
                ("db=10.0.0.5:5432",),
                "ks:80",
                "platform",
                3,
                ("registry",),
            ),
            *(True, ("example.org/team",)),
        )
        self.assertEqual(AgentSettings.parse(settings.to_object()), settings)
        self.assertEqual(AgentSettings.parse({}), AgentSettings())

    def test_invalid_object(self) -> None:
        """Anything else is an error that begins with the path of the field."""
        for value, text in (
            ([], "spec.manifest: must be an object"),
            ({"replica": 3}, "spec.manifest.replica: unknown; the fields are image"),
            ({"replicas": "3"}, "spec.manifest.replicas: must be a whole number"),
            ({"replicas": True}, "spec.manifest.replicas: must be a whole number"),
            ({"replicas": 9}, "spec.manifest.replicas: 9: must be from 1 to 8"),
            ({"replicas": 0}, "spec.manifest.replicas: 0: must be from 1 to 8"),
            ({"namespace": None}, "spec.manifest.namespace: must be a string"),
            ({"namespace": "a.b"}, "spec.manifest.namespace: 'a.b': must be 1 to 63"),
            ({"namespace": ""}, "spec.manifest.namespace: '': must be 1 to 63"),
            ({"imagePullSecrets": ["A"]}, "spec.manifest.imagePullSecrets: 'A' is not the name"),
            ({"imagePullSecrets": ["a"] * 201}, "spec.manifest.imagePullSecrets: 201 names"),
            ({"image": 1}, "spec.manifest.image: must be a string"),
            ({"kubesphereService": 80}, "spec.manifest.kubesphereService: must be a string"),
            ({"kubesphereService": "a b"}, "spec.manifest.kubesphereService: 'a b'"),
            ({"targets": ["db"]}, "spec.manifest.targets: 'db' is not NAME=HOST:PORT"),
            ({"targets": ["kubernetes=h:1"]}, "spec.manifest.targets: 'kubernetes=h:1'"),
            ({"targets": ["a=h:1,b=h:2"]}, "spec.manifest.targets: 'h:1,b=h:2'"),
            (
                {"targets": ["kubesphere=h:1"], "kubesphereService": "h"},
                "spec.manifest.kubesphereService: the",
            ),
            ({"image": "a b"}, "spec.manifest.image: 'a b'"),
            ({"impersonateGroups": "dev"}, "spec.manifest.impersonateGroups: must be a list of strings"),
            ({"impersonateGroups": [1]}, "spec.manifest.impersonateGroups: must be a list of strings"),
            ({"impersonateUid": "true"}, "spec.manifest.impersonateUid: must be true or false"),
            ({"impersonateExtra": "a"}, "spec.manifest.impersonateExtra: must be a list of strings"),
            ({"impersonateUsers": ["jane"]}, "spec.manifest.impersonateUsers: requires impersonateGroups"),
        ):
            error = self.assertRaises(Invalid, AgentSettings.parse, value, "spec.manifest.")
            self.assertTrue(str(error).startswith(text), str(error))

    def test_secret(self) -> None:
        """The token is not shown."""
        joining = Joining("alpha", "tower-t0ken", "wss://t", [], [])
        self.assertNotIn("t0ken", repr(joining))
