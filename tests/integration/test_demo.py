"""``make demo``: its printed commands work when they are pasted, and Ctrl-C ends everything."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.member import BUILD_PATIENCE, REALCLUSTER, kubectls, member
from tests.integration.programs import Program, run, wait_for

ROOT = Path(__file__).resolve().parent.parent.parent
DEMO_PATIENCE = 200.0  # s until the lines are printed


class DemoTests(SynchronousTestCase):
    """Each kind of cluster that the demo puts behind its agent."""

    def setUp(self) -> None:
        """Make an empty folder with a kubectl to find."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        (self.folder / "kubectl").symlink_to(kubectls()[-1])

    def demo(self, **environment: str) -> list[str]:
        """Run the demo, run the commands that it prints, end it with Ctrl-C; return their output."""
        given = {
            "DEMO_KUBECONFIG": "",
            "KUBEBUILDER_ASSETS": "",
            "PYTHONPATH": str(ROOT),
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            **environment,
        }
        program = Program("demo", [sys.executable, "-m", "demo"], self.folder, given)
        self.addCleanup(program.stop)
        program.start()

        def lines() -> list[str]:
            self.assertTrue(program.running(), program.tail())
            printed = program.output()
            return (
                [line.strip() for line in printed.splitlines() if line.startswith("    ")]
                if "Paste" in printed
                else []
            )

        wait_for("the lines to paste", lambda: len(lines()) >= 4, DEMO_PATIENCE)
        pasted = lines()
        self.assertIn("kubectl ", pasted[-1])
        answers = []
        for line in pasted:
            if "create clusterrolebinding" in line:
                continue
            done = run(shlex.split(line), environment={"KUBECACHEDIR": str(self.folder / "cache")})
            self.assertEqual(done.returncode, 0, (line, done.stderr))
            answers.append(done.stdout.decode())
        children = self.children(program.pid)
        self.assertGreaterEqual(len(children), 2)
        program.signal(signal.SIGINT)
        self.assertEqual(program.wait(60), 0)
        self.assertEqual([pid for pid in children if Path(f"/proc/{pid}").exists()], [])
        return answers

    def children(self, pid: int) -> list[int]:
        """Return the child processes of a process."""
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def test_tower_itself(self) -> None:
        """Without a real cluster, Tower's own API serves as one."""
        answers = self.demo()
        self.assertIn("alpha", answers[-1])
        self.assertRegex(answers[2], r"Username +jane\n")

    def test_given_cluster(self) -> None:
        """The cluster of DEMO_KUBECONFIG is behind the agent."""
        self.assertIn("selfsubject", self.demo(DEMO_KUBECONFIG=str(member().admin))[-1])

    def test_api_server(self) -> None:
        """With envtest's binaries a real API server is started."""
        printed = self.demo(KUBEBUILDER_ASSETS=built())
        self.assertIn("kube-system", printed[-1])


def built() -> str:
    """Return the directory of the binaries that `realcluster` builds."""
    done = run([sys.executable, str(REALCLUSTER), "build"], timeout=BUILD_PATIENCE)
    return done.stdout.decode().strip()
