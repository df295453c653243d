from collections.abc import Iterable, Mapping
from os import PathLike
from types import TracebackType
from typing import Any, Callable, Literal, Optional, TypeVar, Union

_F = TypeVar("_F", bound=Callable[..., Any])
_T = TypeVar("_T")
_Path = Union[str, PathLike[str]]

class StartError(RuntimeError): ...
class ReportError(RuntimeError): ...

class Agent:
    @property
    def mode(self) -> str: ...
    def stop(self) -> None: ...
    def __enter__(self) -> Agent: ...
    def __exit__(
        self,
        error_class: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
        /,
    ) -> None: ...

def start(
    worker: Optional[str] = None,
    collector: Optional[str] = None,
    *,
    labels: Optional[Mapping[str, Union[str, float]]] = None,
    token_file: Optional[_Path] = None,
    interval: Optional[float] = None,
    cpu_limit: Optional[float] = None,
    flush_timeout: Optional[float] = None,
    default_task: Optional[str] = None,
) -> Agent: ...
def stop() -> None: ...

class TaskHandle:
    @property
    def name(self) -> Optional[str]: ...
    def run(self, function: Callable[..., _T], /, *args: Any, **kwargs: Any) -> _T: ...
    def result_bytes(self, size: int) -> None: ...
    def result_type(self, name: str) -> None: ...
    def __enter__(self) -> TaskHandle: ...
    def __exit__(
        self,
        error_class: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
        /,
    ) -> Literal[False]: ...

def current_task() -> TaskHandle: ...

class task:
    def __init__(
        self,
        name: str,
        *,
        key: object = None,
        attempt: Optional[int] = None,
        labels: Optional[Mapping[str, Union[str, float]]] = None,
        parent: Optional[TaskHandle] = None,
        queued_for: Optional[float] = None,
        earlier_phases: Iterable[tuple[str, float, float]] = (),
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def handle(self) -> TaskHandle: ...
    def result_bytes(self, size: int) -> None: ...
    def result_type(self, name: str) -> None: ...
    def __call__(self, function: _F) -> _F: ...
    def __enter__(self) -> task: ...
    def __exit__(
        self,
        error_class: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
        /,
    ) -> Literal[False]: ...

class phase:
    def __init__(self, name: str) -> None: ...
    def __enter__(self) -> phase: ...
    def __exit__(
        self,
        error_class: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
        /,
    ) -> Literal[False]: ...

class transfer:
    def __init__(
        self,
        direction: Literal["incoming", "outgoing"],
        peer: str,
        *,
        keys: Iterable[object] = (),
        type_name: Optional[str] = None,
        lasted: float = 0.0,
    ) -> None: ...
    def add_bytes(self, size: int) -> None: ...
    def add_compressed_bytes(self, size: int) -> None: ...
    def __enter__(self) -> transfer: ...
    def __exit__(
        self,
        error_class: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
        /,
    ) -> Literal[False]: ...

class mark_run:
    def __init__(self, name: str) -> None: ...
    def __enter__(self) -> mark_run: ...
    def __exit__(
        self,
        error_class: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
        /,
    ) -> Literal[False]: ...

def expect(name: str, tasks: int) -> None: ...
def report_memory(managed: int, spilled: int) -> None: ...

class Report:
    def finish(self) -> str: ...
    def __enter__(self) -> Report: ...
    def __exit__(
        self,
        error_class: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
        /,
    ) -> Literal[False]: ...

def report(file: _Path) -> Report: ...
def load_ipython_extension(shell: Any) -> None: ...
