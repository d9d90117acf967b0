"""Targets about clusters that are reached by SSH: files, objects, clouds' answers."""

from __future__ import annotations

import json
import random
import tempfile

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.fuzz.engine import Broken, Target
from tower.cloud.aws.xml import BadXML, error_of, parse_xml
from tower.cloud.config.text import ConfigText
from tower.cloud.errors import AnswerTooLarge, CloudConfigError
from tower.cloud.gcfg import parse
from tower.clusters.node import Node
from tower.clusters.ssh_spec_object import check_spec, from_record, read_spec, to_object, to_record
from tower.errors import ConfigurationError, Invalid
from tower.kube.kubeconfig import read_kubeconfig
from tower.nodes.node_sources import ListingFailed, parse_nodes
from tower.nodes.ssh.client_key import ClientKey
from tower.nodes.ssh.host_keys import HostKeyRefused
from tower.nodes.ssh.known_hosts import KnownHosts, parse_line

_BLOB = b"\0\0\0\x0bssh-ed25519\0\0\0 " + b"k" * 32
_LINE = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tr"
_NODE = Node("h1", 2222)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def check_known_hosts(data: bytes, chance: random.Random) -> None:
    """A line makes sense or is a `ValueError`; a key is accepted only by a line that has it."""
    accepted = False
    for number, text in enumerate(_text(data).split("\n"), 1):
        try:
            line = parse_line(number, text)
        except ValueError:
            continue
        if line is not None and line.blob == _BLOB and not line.is_revoked:
            accepted = accepted or line.matches("[h1]:2222") or line.matches("h1")
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        known = KnownHosts(file.name)
        try:
            known.judge(_NODE, _BLOB)
        except HostKeyRefused as e:
            str(e)
        else:
            if not accepted:
                raise Broken("a key is accepted that no line has")


def check_gcfg(data: bytes, chance: random.Random) -> None:
    """A configuration is read, or an error names the file and a line."""
    try:
        parse(ConfigText("cloud.conf", _text(data)))
    except CloudConfigError as e:
        if not str(e).startswith("cloud.conf:"):
            raise Broken(f"an error without its position: {e}") from e


def check_node_list(data: bytes, chance: random.Random) -> None:
    """A list of nodes is read, each once, or an error names the file and a line."""
    try:
        nodes = parse_nodes(_text(data), "nodes")
    except ListingFailed as e:
        if not str(e).startswith("nodes:"):
            raise Broken(f"an error without its position: {e}") from e
        return
    addresses = [node.address for node in nodes]
    if len(set(addresses)) != len(addresses):
        raise Broken(f"a node is there twice: {addresses}")


def check_private_key(data: bytes, chance: random.Random) -> None:
    """A key or a `ValueError` that quotes nothing of the file."""
    try:
        key = ClientKey.parse(data)
    except ValueError as e:
        if len(str(e)) > 300:
            raise Broken("an error that long may have the key in it") from e
        return
    key.sign(key.algorithms[0], b"data")


def check_ssh_object(data: bytes, chance: random.Random) -> None:
    """An object is refused with a reason, or is the same after it was stored and after it was shown."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(value, dict):
        return
    try:
        spec = check_spec(read_spec(value), lambda: ("fake",))
    except Invalid as e:
        str(e)
        return
    if from_record(json.loads(json.dumps(to_record(spec)))) != spec:
        raise Broken(f"{spec} is another one in the store")
    if read_spec(to_object(spec)) != spec:
        raise Broken(f"{spec} is another one when it is shown")


def check_kubeconfig(data: bytes, chance: random.Random) -> None:
    """A kubeconfig from a user is read without a file's being touched, or refused."""
    try:
        access = read_kubeconfig(data, "it")
    except ConfigurationError as e:
        str(e)
        return
    if access.files or access.token_file:
        raise Broken(f"it leads to files: {access}")


def check_xml(data: bytes, chance: random.Random) -> None:
    """An answer of AWS's is read, or is not valid XML; nothing in it is expanded."""
    try:
        root = parse_xml(data)
    except (BadXML, AnswerTooLarge):
        return
    error_of(root)
    if sum(len(element.text or "") for element in root.iter()) > len(data):
        raise Broken("there is more in it than came")


_KEY = Ed25519PrivateKey.generate()
_KUBECONFIG = b"""apiVersion: v1
kind: Config
current-context: a
clusters: [{name: a, cluster: {server: "https://10.0.0.1:6443", certificate-authority: /etc/ca}}]
users: [{name: a, user: {token: abc, tokenFile: /etc/token}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
"""

TARGETS = (
    Target(
        "known-hosts",
        (
            b"h1 " + _LINE,
            b"[h1]:2222 " + _LINE + b"\n@revoked * " + _LINE,
            b"|1|MDEyMzQ1Njc4OWFiY2RlZmdoaWo=|MDEyMzQ1Njc4OWFiY2RlZmdoaWo= " + _LINE,
            b"!h1,* " + _LINE + b" comment\n@cert-authority * " + _LINE,
        ),
        (b"|1|", b"@revoked ", b"*", b"?", b"!", b",", b"[", b"]:", b"ssh-rsa ", b"="),
        check_known_hosts,
    ),
    Target(
        "gcfg",
        (
            b'[global]\nproject-id = "p"\nnode-tags = a\nnode-tags = b ; c\n[Sub "x\\"y"]\nbare\n',
            b"\xef\xbb\xbf[a]\r\nb=\\\r\nc",
        ),
        (b"[", b'"', b"\\", b"]", b"=", b";", b"#", b"\\n", b"\r\n", b"\0", b" "),
        check_gcfg,
    ),
    Target(
        "node-list",
        (b"h1\nh2:22 # x\n[fd00::1]:22 n1 10.0.0.1\n", b"fd00::1\n\n#\n"),
        (b":", b"[", b"]", b"#", b"65536", b" ", b"\x0c"),
        check_node_list,
    ),
    Target(
        "private-key",
        (
            _KEY.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()),
            _KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        ),
        (b"-----BEGIN ", b"OPENSSH ", b"RSA ", b"ENCRYPTED ", b"aes256-ctr", b"bcrypt", b"="),
        check_private_key,
    ),
    Target(
        "ssh-object",
        (
            b'{"user":"core","keyFile":"/k","nodes":["h1","[fd00::1]:22"],"targets":{"pg":"10.0.0.5:5432"}}',
            b'{"user":"core","keyFile":"/k","cloudProvider":"fake","cloudConfig":"/c","hostKeys":"accept-new"}',
            b'{"user":"c","keyFile":"/k","addressTypes":["InternalIP"],"allowSystemIdentities":true,"sshPort":2}',
        ),
        (b'"nodesFile":"/n",', b'"kubeletPort":0,', b"null", b"true", b"[]", b"{}", b"65536", b'""', b"-1"),
        check_ssh_object,
    ),
    Target(
        "member-kubeconfig",
        (
            _KUBECONFIG,
            _KUBECONFIG.replace(b"certificate-authority: /etc/ca", b"insecure-skip-tls-verify: true"),
        ),
        (b"certificate-authority-data: ", b"&a", b"*a", b"exec: ", b"!!python/object", b"tokenFile: ", b"- "),
        check_kubeconfig,
    ),
    Target(
        "aws-xml",
        (
            b"<Response><Errors><Error><Code>C</Code><Message>m</Message></Error></Errors></Response>",
            b"<A xmlns='urn:x'><nextToken>t</nextToken><reservationSet><item/></reservationSet></A>",
        ),
        (b"<!DOCTYPE a [<!ENTITY b 'c'>]>", b"&b;", b"&amp;", b"<![CDATA[", b"</", b"<?xml version='1.0'?>"),
        check_xml,
    ),
)
