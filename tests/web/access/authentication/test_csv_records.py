"""Tests of `tower.web.access.authentication.csv_records`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.web.access.authentication.csv_records import csv_records


class CSVRecordsTests(SynchronousTestCase):
    def test_records(self) -> None:
        """Fields, quoted or not, as Go reads them."""
        for text, records in (
            ("", []),
            ("a,b\n", [["a", "b"]]),
            ("a,b", [["a", "b"]]),
            ("a,b\r\n\r\n\nc\r", [["a", "b"], ["c"]]),
            ("a,,\n", [["a", "", ""]]),
            (" a , b\n", [[" a ", " b"]]),
            ('"a,b",c\n', [["a,b", "c"]]),
            ('"",""\n', [["", ""]]),
            ('"a ""b"" c"\n', [['a "b" c']]),
            ('"a\nb",c\nd\n', [["a\nb", "c"], ["d"]]),
            ('"a\r\nb"', [["a\nb"]]),
            ("é,ü\n", [["é", "ü"]]),
        ):
            self.assertEqual(list(csv_records(text)), records, text)

    def test_malformed(self) -> None:
        """The texts are Go's; columns count bytes."""
        bare, missing = 'bare " in non-quoted-field', 'extraneous or missing " in quoted-field'
        for text, problem in (
            ('a,b"c\n', f"parse error on line 1, column 4: {bare}"),
            ('é,b"c\n', f"parse error on line 1, column 5: {bare}"),
            ('ok\n\n a,"b"x\n', f"parse error on line 3, column 6: {missing}"),
            ('"abc\n', f"parse error on line 1, column 6: {missing}"),
            ('"abc', f"parse error on line 1, column 5: {missing}"),
            ('ok\n"a\nb"c\n', f"record on line 2; parse error on line 3, column 2: {missing}"),
            ('"a\nbc', f"record on line 1; parse error on line 2, column 3: {missing}"),
        ):
            with self.assertRaises(ValueError) as caught:
                list(csv_records(text))
            self.assertEqual(str(caught.exception), problem, text)
