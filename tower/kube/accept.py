"""What a client wants to read: the `Accept` header, as Kubernetes clients write it.

kubectl asks for one resource in several shapes, told apart by parameters of the media type:
`application/json;as=Table;v=v1;g=meta.k8s.io,application/json`.  Sans-IO, no state.
"""

from __future__ import annotations

from attrs import frozen

#: Parameters that choose a shape; a clause with any of them fits only an offer that has the same.
_SHAPE = ("as", "g", "v", "stream")


@frozen
class Clause:
    """One media range of an `Accept` header.

    :ivar media: lower case, for instance `application/json` or `*/*`.
    :ivar parameters: without `q`.
    :ivar quality: 0 to 1, as in RFC 9110 section 12.4.2.
    """

    media: str
    parameters: dict[str, str]
    quality: float

    def fits(self, offer: Clause) -> bool:
        """Say whether *offer* is what this clause asks for."""
        if self.media not in ("*/*", offer.media) and self.media != offer.media.split("/")[0] + "/*":
            return False
        return all(self.parameters.get(name) == offer.parameters.get(name) for name in _SHAPE)


def parse_clause(text: str) -> Clause:
    """Read one media type with its parameters; a quality that is no number counts as 0."""
    media, *rest = (part.strip() for part in text.split(";"))
    parameters = {}
    for part in rest:
        name, _, value = part.partition("=")
        parameters[name.strip().lower()] = value.strip().strip('"')
    try:
        quality = float(parameters.pop("q", "1"))
    except ValueError:
        quality = 0.0
    return Clause(media.lower(), parameters, quality)


def choose(accept: str, offers: list[str]) -> str | None:
    """Return the offer that the client likes best, or None when it takes none of them.

    :param accept: the header's value; empty means that anything will do.
    :param offers: media types that we can write, ours preferred first.
    """
    if not accept.strip():
        return offers[0]
    parsed = [parse_clause(offer) for offer in offers]
    clauses = [parse_clause(text) for text in accept.split(",") if text.strip()]
    clauses = [clause for clause in clauses if clause.quality > 0]
    for clause in sorted(clauses, key=lambda clause: -clause.quality):  # stable: equals keep their order
        for text, offer in zip(offers, parsed, strict=True):
            if clause.fits(offer):
                return text
    return None
