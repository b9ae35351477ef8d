"""Sessions of the people who have signed in, in memory: they end with the process."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_SESSION_SECONDS = 12 * 60 * 60.0
MAX_SESSIONS_OF_PRINCIPAL = 20
"""With one more, the oldest session of the principal ends: nobody can end the sessions of others."""

_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Session:
    """One session.

    | Field      | Description |
    |------------|-------------|
    | principal  | The principal that has signed in. |
    | token      | The bearer token, which is checked again with each request. |
    | ends       | The time of the clock at which the session ends. |
    | form_token | The secret that each form of the session contains. |
    """

    principal: str
    token: str = field(repr=False)
    ends: float
    form_token: str = field(repr=False, default_factory=lambda: secrets.token_urlsafe(_SECRET_BYTES))


class Sessions:
    """All sessions, by their ids, which are secrets."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: dict[str, Session] = {}  # the oldest first

    def begin(self, principal: str, token: str) -> str:
        """Begin a session, and return its new id."""
        now = self._clock()
        self._sessions = {id_: session for id_, session in self._sessions.items() if session.ends > now}
        of_principal = [id_ for id_, session in self._sessions.items() if session.principal == principal]
        for id_ in of_principal[: len(of_principal) - MAX_SESSIONS_OF_PRINCIPAL + 1]:
            self.end(id_)
        new = secrets.token_urlsafe(_SECRET_BYTES)
        self._sessions[new] = Session(principal, token, now + MAX_SESSION_SECONDS)
        return new

    def find(self, id_: str) -> Session | None:
        """Return a session; None if there is none with this id, or it has ended."""
        session = self._sessions.get(id_)
        return session if session is not None and session.ends > self._clock() else None

    def end(self, id_: str) -> None:
        """End a session, if there is one with this id."""
        self._sessions.pop(id_, None)
