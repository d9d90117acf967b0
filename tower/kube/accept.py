"""Content negotiation by the `Accept` header of Kubernetes clients.

kubectl requests a resource in several shapes, which differ in the media type's parameters:
`application/json;as=Table;v=v1;g=meta.k8s.io,application/json`.
"""

from __future__ import annotations

from attrs import frozen

#: Parameters that select a shape; clause and offer must have the same ones.
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
        """Return whether *offer* matches this clause."""
        if self.media not in ("*/*", offer.media) and self.media != offer.media.split("/")[0] + "/*":
            return False
        return all(self.parameters.get(name) == offer.parameters.get(name) for name in _SHAPE)


def parse_clause(text: str) -> Clause:
    """Parse one media type with its parameters; a malformed quality counts as 0."""
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
    """Return the offer that the client prefers, or None if it accepts none.

    :param accept: the header's value; empty accepts everything.
    :param offers: supported media types, the server's preference first.
    """
    if not accept.strip():
        return offers[0]
    parsed = [parse_clause(offer) for offer in offers]
    clauses = [parse_clause(text) for text in accept.split(",") if text.strip()]
    accepted = [clause for clause in clauses if clause.quality > 0]
    for clause in sorted(accepted, key=lambda clause: -clause.quality):  # stable: equals keep their order
        for text, offer in zip(offers, parsed, strict=True):
            if clause.fits(offer):
                return text
    return None
