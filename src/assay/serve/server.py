"""Running the service: the first signal lets what was accepted end, the second ends at once."""

from __future__ import annotations

import threading
from types import FrameType

import uvicorn

from assay.serve.app import create_app
from assay.serve.broker import Broker, checked
from assay.serve.settings import Settings


class _Server(uvicorn.Server):
    """Goes on answering while it drains."""

    def __init__(self, config: uvicorn.Config, broker: Broker, seconds: float) -> None:
        super().__init__(config)
        self._broker, self._seconds = broker, seconds
        self._draining = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal to stop."""
        if self._draining:
            super().handle_exit(sig, frame)
            return
        self._draining = True
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        self._broker.drain(self._seconds)
        self.should_exit = True


def serve(settings: Settings, host: str, port: int) -> None:
    """Serve until a signal. Raises InputError for settings that cannot be."""
    broker = Broker(checked(settings))
    try:
        config = uvicorn.Config(create_app(settings, broker), host=host, port=port, log_level="warning",
                                timeout_graceful_shutdown=5)
        _Server(config, broker, settings.drain_s).run()
    finally:
        broker.close()
