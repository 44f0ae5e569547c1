"""What goes over the two sockets between a client and the engine core's process: [kind, payload].

The core adds the log entries that came before the message: [kind, payload, entry, ...].
"""

from enum import Enum

import zmq


class ToCore(bytes, Enum):
    ADD = b"add"  # EngineCoreRequest
    ABORT = b"abort"  # list of ids
    CALL = b"call"  # UtilityCall
    TRACE_DELAY = b"trace_delay"  # seconds
    SHUTDOWN = b"shutdown"


class FromCore(bytes, Enum):
    READY = b"ready"  # num_gpu_blocks
    REFUSED = b"refused"  # startup: text of a ConfigError
    DEAD = b"dead"  # why, in startup or later
    OUTPUTS = b"outputs"  # EngineCoreOutputs
    RESULT = b"result"  # UtilityResult
    TRACE = b"trace"  # a log entry as it is


def make_socket(context: zmq.Context, kind: int, linger_ms: int) -> zmq.Socket:
    """Return a socket that never drops a message for want of room."""
    socket = context.socket(kind)
    socket.set_hwm(0)
    socket.linger = linger_ms
    return socket
