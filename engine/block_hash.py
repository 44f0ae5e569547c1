"""Names the contents of a full block, and through its parent everything before it."""

from array import array
from hashlib import sha256

from engine.request import Request

_ROOT = bytes(32)


def block_hashes(request: Request, count: int, block_size: int) -> list[bytes]:
    """Return the hashes of the request's first `count` blocks, all full of known tokens.

    Each is SHA-256 over its parent's hash and its token ids. The first one's parent stands for the cache salt, so
    that requests with different salts never share a block.
    """
    hashes = request.block_hashes
    for i in range(len(hashes), count):
        parent = hashes[-1] if hashes else _root(request.cache_salt)
        tokens = array("q", request.token_ids[i * block_size : (i + 1) * block_size])
        hashes.append(sha256(parent + tokens.tobytes()).digest())
    return hashes if len(hashes) == count else hashes[:count]


def _root(cache_salt: str | None) -> bytes:
    return _ROOT if cache_salt is None else sha256(b"cache_salt" + cache_salt.encode()).digest()
