"""AWS's XML, and invalid XML."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element

from twisted.trial.unittest import SynchronousTestCase

from tests.cloud.asking import finish
from tests.cloud.pumped import CountingClock
from tower.cloud.aws.api import read_error
from tower.cloud.aws.instances import instance_id_of, instance_items, read_instance, region_of
from tower.cloud.aws.xml import PIECE, BadXML, parse_long_xml, parse_xml, text_of
from tower.cloud.errors import AnswerTooLarge, CloudError

BOMB = b'<!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;&b;&b;">]><a>&c;</a>'


class XMLTest(SynchronousTestCase):
    """Reading XML."""

    def test_names(self) -> None:
        """Names are read without their namespace, texts without blanks around them."""
        root = parse_xml(b'<?xml version="1.0"?><R xmlns="http://x/"><a> <b>\n c &amp; d </b></a></R>')
        self.assertEqual((root.tag, text_of(root, "a/b"), text_of(root, "a/c")), ("R", "c & d", ""))

    def test_document_types(self) -> None:
        """A document type is refused, and with it every entity."""
        for data in (BOMB, b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>'):
            error = self.assertRaises(BadXML, parse_xml, data)
            self.assertIn("document type", str(error))

    def test_no_xml(self) -> None:
        """Invalid XML is rejected with the line, without a quote."""
        for data in (
            b"",
            b"secret",
            b"<a>",
            b"<a/><b/>",
            b"<a>&secret;</a>",
            b"\xff\xfe\x00",
            b"<a>\n\x01</a>",
        ):
            error = self.assertRaises(BadXML, parse_xml, data)
            self.assertNotIn("secret", str(error))

    def test_deep(self) -> None:
        """However deep it is, it is read and forgotten."""
        depth = 400_000
        root = parse_xml(b"<a>" * depth + b"</a>" * depth)
        self.assertEqual(len(root), 1)

    def test_encodings(self) -> None:
        """It is read as UTF-8, also if it declares another encoding, which could hide a document type."""
        hidden = BOMB.decode().encode("utf-16")
        for data in (hidden, b'<?xml version="1.0" encoding="utf-16"?>' + hidden):
            self.assertRaises(BadXML, parse_xml, data)

    def test_too_much(self) -> None:
        """Too many elements are refused."""
        error = self.assertRaises(AnswerTooLarge, parse_xml, b"<a>" + b"<b/>" * 600_000 + b"</a>")
        self.assertIn("too many", str(error))


class LongXMLTest(SynchronousTestCase):
    """Reading XML in pieces."""

    UNNEEDED = re.compile(rb"<(b|set)>(?:[^<]*<(?!/\1>))*[^<]*</\1>")

    def setUp(self) -> None:
        """Make a clock."""
        self.clock = CountingClock()

    def read(self, data: bytes) -> Element:
        """Read it all."""
        return finish(self.clock, parse_long_xml(self.clock, data, self.UNNEEDED))

    def test_same(self) -> None:
        """Used elements are read as without cutting, wherever pieces end; unused ones are cut."""
        items = "".join(
            f"<i><n>{n}é</n><set><i><n>x</n></i></set><b>&lt;b&gt;</b></i>" for n in range(20_000)
        )
        data = f'<?xml version="1.0"?><R xmlns="http://x/">{items}</R>'.encode()
        plain, found = parse_xml(data), self.read(data)
        self.assertEqual([each.findtext("n") for each in found], [each.findtext("n") for each in plain])
        left = sum(1 for _ in found.iter())
        self.assertLess(left, sum(1 for _ in plain.iter()) / 2)
        self.assertEqual(self.clock.turns, (len(data) - 1) // PIECE)

    def test_comments(self) -> None:
        """With comments or CDATA sections, nothing is cut."""
        for data in (b"<R><!-- <b> --><n>1</n><b>2</b></R>", b"<R><n><![CDATA[<b>]]></n><b>2</b></R>"):
            self.assertEqual(self.read(data).findtext("b"), "2")

    def test_wrong(self) -> None:
        """Invalid XML is rejected, wherever pieces end."""
        for data in (b"", b"<R><b></R>", b"<R><b>1</b>", b"<R></R></R>", b"<!DOCTYPE R><R/>"):
            self.assertRaises(BadXML, self.read, data)


class InstancesTest(SynchronousTestCase):
    """Reading of instances."""

    def test_little(self) -> None:
        """An instance that is being made has few things, and its id for a name."""
        root = parse_xml(
            b"<R><reservationSet><item><instancesSet><item><instanceId>i-0123456789abcdef0</instanceId>"
            b"<instanceState><name>pending</name></instanceState><privateDnsName/>"
            b"</item></instancesSet></item></reservationSet></R>"
        )
        (found,) = map(read_instance, instance_items(root))
        self.assertEqual(
            (found.as_instance().name, found.state, found.addresses), ("i-0123456789abcdef0", "pending", ())
        )

    def test_regions(self) -> None:
        """Zones of all kinds are in their regions."""
        for zone, region in {
            "us-east-1a": "us-east-1",
            "eu-central-1c": "eu-central-1",
            "us-gov-west-1b": "us-gov-west-1",
            "eusc-de-east-1a": "eusc-de-east-1",
            "us-west-2-lax-1a": "us-west-2",
            "us-east-1-wl1-bos-wlz-1": "us-east-1",
            "": "",
            "here": "",
        }.items():
            self.assertEqual(region_of(zone), region)

    def test_provider_ids(self) -> None:
        """A provider id names an instance with or without its zone, and nothing else does."""
        for text in (
            "aws:///us-east-1a/i-0123456789abcdef0",
            "aws:///i-0123456789abcdef0",
            "i-0123456789abcdef0",
        ):
            self.assertEqual(instance_id_of(text), "i-0123456789abcdef0")
        for text in ("", "aws:///us-east-1a/", "aws://a/b/i-01234567", "azure:///i-01234567", "aws:///i-XYZ"):
            self.assertRaises(CloudError, instance_id_of, text)


class ErrorsTest(SynchronousTestCase):
    """Errors of the services, in both languages."""

    def test_read(self) -> None:
        """Code and message are read from XML of both forms and from JSON; else there are none."""
        for body, wanted in {
            b"<Response><Errors><Error><Code>A</Code><Message>b</Message></Error></Errors></Response>": (
                "A",
                "b",
            ),
            b"<ErrorResponse><Error><Type>Sender</Type><Code>A</Code></Error></ErrorResponse>": ("A", ""),
            b'{"__type": "com.amazon#AException", "message": "b"}': ("AException", "b"),
            b'{"__type": "AException:http://x/", "Message": "b"}': ("AException", "b"),
            b'{"message": "b"}': ("", ""),
            b"[1]": ("", ""),
            b"<html>": ("", ""),
            BOMB: ("", ""),
            b"[" * 100_000: ("", ""),
            b"<a>" + b"<b/>" * 600_000 + b"</a>": ("", ""),
        }.items():
            self.assertEqual(read_error(body), wanted)
