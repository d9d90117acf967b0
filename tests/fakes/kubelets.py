"""Kubelets in memory, with their certificate authorities."""

from __future__ import annotations

import ssl

from tests.fakes.certificates import DAY, NOW, authority
from tests.fakes.pipes import FakePipe
from tower.net.tls.client_certificate import load_pair
from tower.trust.pki import Authority

CA = authority("cluster")


OTHER = authority("kubelets")


class KubeletPipe(FakePipe):
    """A pipe to a kubelet.

    :ivar got: the data received through TLS.
    :ivar client: the certificate that was shown, DER.
    """

    def __init__(self, of: Authority, name: str) -> None:
        super().__init__()
        issued = of.server_certificate([name], 3650 * DAY, NOW)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_pair(context, issued.certificate_pem, issued.key_pem)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=CA.pem.decode())
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._shaken = False
        self.got = b""
        self.client: bytes | None = None

    def serve(self) -> None:
        """Take what was sent, and answer in TLS."""
        for _ in range(5):
            self._in.write(self.taken())
            try:
                if not self._shaken:
                    self._tls.do_handshake()
                    self._shaken = True
                    self.client = self._tls.getpeercert(binary_form=True)
                self.got += self._tls.read(65536)
            except ssl.SSLError:
                pass
            if answer := self._out.read():
                self.deliver(answer)

    def answer(self, data: bytes) -> None:
        """Send *data* through TLS."""
        self._tls.write(data)
        self.deliver(self._out.read())
