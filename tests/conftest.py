"""Fixtures for all tests of the tool itself."""

import signal
import threading

pytest_plugins = ["pytester"]

# A shell's background job ignores Ctrl-C, and so would everything that tests start and then interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
