"""What our own tests use and yours can: a virtual clock, a scripted provider, and a pytest plugin.

Nothing in Shoal imports this package.
"""

from shoal.testing._clock import BUSY, LIMITERS, VirtualLoop, threads_busy, virtual_backend

__all__ = ["BUSY", "LIMITERS", "VirtualLoop", "threads_busy", "virtual_backend"]
