"""Tasks of frameworks in programs that do not know of Emberline, under `emberline record` and `emberline run`.

`emberline.pth` imports this at the start of Python there. The package itself is imported only after a framework, whose
tasks need an agent of the package: it takes the place of the one that was loaded into the program.
"""

import sys


def _celery():
    import emberline.celery

    emberline.celery.install()


def _dask():
    from emberline.dask import _local

    _local.install()


def _distributed():
    import dask

    for key in ("distributed.worker.preload", "distributed.scheduler.preload"):
        modules = dask.config.get(key, default=[])
        modules = [modules] if isinstance(modules, str) else list(modules)
        if "emberline.dask" not in modules:
            dask.config.set({key: [*modules, "emberline.dask"]})


def _prefect():
    import emberline.prefect

    emberline.prefect.install()


def _rq():
    import emberline.rq
    import rq.worker

    for name in ("Worker", "SimpleWorker"):
        worker = getattr(emberline.rq, name)
        setattr(rq, name, worker)
        setattr(rq.worker, name, worker)


# By the module after whose import each is called.
_HOOKS = {
    "celery.app.base": _celery,
    "dask": _dask,
    "distributed": _distributed,
    "prefect.task_engine": _prefect,
    "rq": _rq,
}


class _Loader:
    """The loader of a framework, which calls its hook afterwards."""

    def __init__(self, loader, hook):
        self._loader = loader
        self._hook = hook

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            self._hook()
        except Exception as error:
            import warnings

            warnings.warn(f"emberline: tasks of {module.__name__} are not recorded: {error!r}", RuntimeWarning, stacklevel=2)


class _Finder:
    """Finds modules as Python would without it."""

    def find_spec(self, name, path=None, target=None):
        hook = _HOOKS.pop(name, None)
        if hook is None:
            return None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                        spec.loader = _Loader(spec.loader, hook)
                    return spec
        _HOOKS[name] = hook
        return None


def wait():
    """Waits for imports of frameworks."""
    sys.meta_path.insert(0, _Finder())
