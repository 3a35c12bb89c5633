"""Errors of a search: one base to catch, few leaves, each keeping its fields and building its own message."""

from __future__ import annotations

from collections.abc import Iterable


class SearchError(Exception):
    """Base of everything a search raises on purpose.

    Parameters
    ----------
    detail : str
        One sentence for the user: what is wrong and what to do.
    field : str, optional
        The input that was refused.
    came : object, optional
        Its value.
    allowed : iterable or mapping, optional
        What would have been accepted: a closed list, or ``{"minimum": ..., "maximum": ...}``.
    """

    title = "The search was refused"

    def __init__(
        self,
        detail: str,
        *,
        field: str | None = None,
        came: object = None,
        allowed: Iterable[object] | dict[str, object] = (),
    ) -> None:
        self.detail = detail
        self.field = field
        self.came = came
        self.allowed = allowed if isinstance(allowed, dict) else list(allowed)
        super().__init__(detail)


class EmptyQuery(SearchError):
    """A query without a visible character."""

    title = "The query is empty"

    def __init__(self) -> None:
        super().__init__(
            "the query is empty: say what the picture shows, e.g. a dog to the left of a bench", field="query"
        )


class QueryTooLong(SearchError):
    """A query of more characters than anyone types."""

    title = "The query is too long"

    def __init__(self, length: int, limit: int) -> None:
        super().__init__(
            f"the query has {length} characters: at most {limit} are read",
            field="query",
            came=length,
            allowed={"maximum": limit},
        )


class OutOfRange(SearchError):
    """A number outside its range."""

    title = "A value is out of range"

    def __init__(self, field: str, came: object, low: float, high: float) -> None:
        super().__init__(
            f"{field} is {came}: allowed are {low} to {high}",
            field=field,
            came=came,
            allowed={"minimum": low, "maximum": high},
        )


class NotOffered(SearchError):
    """A value that is none of a few."""

    title = "A value is not offered"

    def __init__(self, field: str, came: object, allowed: Iterable[object]) -> None:
        offered = list(allowed)
        super().__init__(
            f"{field} is {came}: allowed are {', '.join(map(str, offered))}",
            field=field,
            came=came,
            allowed=offered,
        )


class BadCursor(SearchError):
    """A cursor that does not continue this search."""

    title = "The cursor does not fit"

    def __init__(self, why: str) -> None:
        super().__init__(f"the cursor {why}: start again without one", field="cursor")


class UnknownImage(SearchError):
    """An id that no indexed picture has."""

    title = "There is no such picture"

    def __init__(self, image_id: str) -> None:
        super().__init__(
            f"no picture of this index has the id {image_id[:40]!r}", field="id", came=image_id[:40]
        )


class ImageGone(SearchError):
    """An indexed picture whose file is no longer there, or no longer that picture."""

    title = "The picture is gone"

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        super().__init__(f"{path} was indexed, but {why}: index the folder again", field="id")


class NoDevice(SearchError):
    """CUDA was asked for and torch sees none."""

    title = "There is no such device"

    def __init__(self) -> None:
        super().__init__(
            "torch sees no CUDA device here: leave --device out", field="device", allowed=["auto", "cpu"]
        )


class InexactDevice(SearchError):
    """A device whose products are further from the truth than exactness allows."""

    title = "The device does not compute exactly enough"

    def __init__(self, device: str, off: float, allowed: float) -> None:
        super().__init__(
            f"a score made on {device} is off by {off:.1e}, where at most {allowed:.1e} keeps the ranking exact: "
            "use --device cpu",
            field="device",
        )
