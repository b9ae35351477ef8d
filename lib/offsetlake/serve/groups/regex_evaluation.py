"""Evaluates the regular expressions of groups in a thread, so that they do not delay other requests."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from offsetlake.coordinator.consumer import regexes
from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.consumer.regexes import MIN_REFRESH_INTERVAL_MS, RegexEvaluation, TooManyMatches
from offsetlake.coordinator.steps import Step
from offsetlake.coordinator.topics import TopicDescriptions
from offsetlake.serve.groups.live_group import LiveGroup
from offsetlake.util.log_lines import ClientLog, quoted

LOG = ClientLog(logging.getLogger(__name__))


class RegexEvaluations:
    """The evaluations in progress; they share one thread, which evaluates one expression of each group in turn.

    `run_step` runs a function in a step of a group, unless the group was deleted.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        topics: Callable[[], TopicDescriptions],
        run_step: Callable[[LiveGroup, Callable[[Step], None]], None],
    ) -> None:
        self._loop, self._topics, self._run_step = loop, topics, run_step
        self._thread = ThreadPoolExecutor(1, "regex")
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, live: LiveGroup) -> None:
        """Evaluate the expressions of a group if that is planned, and store the result in a later step."""
        group = live.group
        if isinstance(group, ConsumerGroup) and group.regexes_to_evaluate is not None:
            task = self._loop.create_task(self._run(live, group, group.regexes_to_evaluate))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    async def _run(self, live: LiveGroup, group: ConsumerGroup, evaluation: RegexEvaluation) -> None:
        topics = self._topics()
        version = topics.version()
        matched = await self._matched(group.group_id, regexes.evaluate(evaluation, topics.names()))

        def store(step: Step) -> None:
            if live.group is not group or group.regexes_to_evaluate is not evaluation:
                return  # the group was replaced, or the heartbeat that planned the evaluation could not be written
            if matched is None:
                group.regexes_to_evaluate = None
            else:
                regexes.store(step, group, matched, version)

        self._run_step(live, store)

    async def _matched(self, group_id: str, evaluated: Iterator[tuple[str, list[str]]]) -> dict[str, list[str]] | None:
        """Return the topics that each expression matches.

        If there are too many, return None after the time in which a broker evaluates the expressions of a group once.
        """
        matched = {}
        try:
            while (found := await self._loop.run_in_executor(self._thread, next, evaluated, None)) is not None:
                matched[found[0]] = found[1]
        except TooManyMatches:
            LOG.warning(
                "The regular expressions of group %s have no effect: they and the names of the topics that they match "
                "take more than %d bytes. Subscribe with fewer, shorter or narrower expressions",
                quoted(group_id),
                regexes.MAX_MATCHED_BYTES,
            )
            await asyncio.sleep(MIN_REFRESH_INTERVAL_MS / 1_000)
            return None
        return matched

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.result()  # raises an internal error, which the event loop logs
