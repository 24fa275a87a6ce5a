"""Tasks done in several processes at the same time, each on one core, where threads would be in each other's way."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import nullcontext, suppress
from queue import SimpleQueue
from typing import Any, NamedTuple, Self

from quantus_concepts.studies.training import one_thread

# Not those of multiprocessing, which run the script that calls once more and outlive a process that is killed.
_SERVE = "import gc, pickle, sys; gc.set_threshold(10_000); sys.path[:] = pickle.load(sys.stdin.buffer); "
_SERVE += f"from {__name__} import serve; serve()"
_READY = b"ready"


_ENDED = (
    "A process that helped ended before it was done ({}), as it does where there is too little memory. What it was "
    "doing is done again, by one process less."
)


class _Answer(NamedTuple):
    """What became of a task that a helper was given; one it could not do is left to the process that asked."""

    done: bool = False
    result: Any = None
    error: Exception | None = None
    warned: Sequence[Warning | str] = ()


class _Helper:
    """A process that is given one task after another, once it has loaded what it needs."""

    def __init__(self, module: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            process_group=0,  # Ctrl-C is told to the process that asks, which ends this one
        )
        self.ready, self.lock = False, threading.Lock()
        self._tell(pickle.dumps(sys.path) + pickle.dumps(module))

    def feed(
        self,
        contents: Mapping[int, bytes | None],
        places: deque[int],
        answers: SimpleQueue[tuple[int, _Answer]],
    ) -> None:
        """Hand on tasks while there are any."""
        place = None
        with self.lock:
            try:
                self.ready = self.ready or self._told() == _READY
                while (place := _taken(places)) is not None:
                    self._tell(pickle.dumps(contents[place]))
                    answers.put((place, self._told()))
            except Exception as error:  # an end of the stream, or what cannot be read back
                self.process.kill()
                if place is not None:
                    answers.put((place, _Answer(warned=[_ENDED.format(type(error).__name__)])))

    def _tell(self, content: bytes) -> None:
        if self.process.stdin is not None:
            self.process.stdin.write(content)
            self.process.stdin.flush()

    def _told(self) -> Any:
        return None if self.process.stdout is None else pickle.load(self.process.stdout)


class Helpers:
    """Processes beside this one that take tasks from it; they end with the context, and with this process."""

    def __init__(self, number: int, module: str = __name__) -> None:
        self._number, self._module = number, module
        self._helpers: list[_Helper] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        """Start them and let them load a module; where that cannot be, there are fewer."""
        with suppress(OSError):
            for _ in range(self._number if sys.executable else 0):
                self._helpers.append(_Helper(self._module))
        return self

    def __exit__(self, *_: object) -> None:
        for helper in self._helpers:
            helper.process.kill()
        for thread in self._threads:
            thread.join()
        for helper in self._helpers:
            with suppress(OSError), helper.process:  # of what was not sent any more
                pass

    def results(self, tasks: Sequence[Callable[[], Any]]) -> Generator[tuple[int, Any], None, None]:
        """Yield the place and the result of each task as it is done, here or by a helper; raise what one raises.

        What helpers warn of is warned of here. What cannot be pickled, or whose helper died, is done here.
        """
        alive = [helper for helper in self._helpers if helper.process.poll() is None] if len(tasks) > 1 else []
        contents = {place: _pickled(task) for place, task in enumerate(tasks)} if alive else {}
        for_all = deque(place for place, content in contents.items() if content)
        for_here = deque(place for place in range(len(tasks)) if not contents.get(place))
        answers: SimpleQueue[tuple[int, _Answer]] = SimpleQueue()
        for helper in alive:
            self._threads.append(threading.Thread(target=helper.feed, args=(contents, for_all, answers)))
            self._threads[-1].start()
        left = len(tasks)
        try:
            while left:
                place = _taken(for_here)
                place = _taken(for_all) if place is None else place
                if place is not None:
                    with one_thread() if alive else nullcontext():
                        result = tasks[place]()
                    left -= 1
                    yield place, result
                while left and not for_here and (place is None or not answers.empty()):
                    other, answer = answers.get()
                    for warned in answer.warned:
                        warnings.warn(warned, stacklevel=2)
                    if answer.error is not None:
                        raise answer.error
                    if answer.done:
                        left -= 1
                        yield other, answer.result
                    else:
                        for_here.append(other)
        finally:
            for_all.clear()


def serve() -> None:
    """Do tasks that come through the standard input until it ends, as it does with the process that sends them."""
    importlib.import_module(pickle.load(sys.stdin.buffer))
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # for what tasks print
        asked: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=_listen, args=(asked,), daemon=True).start()
        answer = pickle.dumps(_READY)
        while True:
            answers.write(answer)
            answers.flush()
            answer = _answered(asked.get())


def _listen(asked: SimpleQueue[bytes]) -> None:
    try:
        while True:
            asked.put(pickle.load(sys.stdin.buffer))
    finally:
        os._exit(0)  # nobody waits for the task that is being done


def _answered(content: bytes) -> bytes:
    try:
        task = pickle.loads(content)
    except Exception:  # what is no module's, but of a script or a file of the user's
        return pickle.dumps(_Answer())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            answer = _Answer(True, task())
        except Exception as error:  # whatever a task raises
            error.add_note("".join(traceback.format_exception(error)))
            answer = _Answer(True, error=error)
    return _pickled(answer._replace(warned=[each.message for each in caught])) or pickle.dumps(_Answer())


def _taken(places: deque[int]) -> int | None:
    try:
        return places.popleft()
    except IndexError:
        return None


def _pickled(value: Any) -> bytes | None:
    try:
        return pickle.dumps(value)
    except Exception:  # whatever a member raises
        return None
