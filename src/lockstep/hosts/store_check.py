"""Whether this host can use an object store."""

from pydantic import JsonValue

from lockstep.remote.store import Store, StoreError


def check_store(url: str, token: str) -> JsonValue:
    """Writes a small object, reads it again and deletes it. Raises StoreError."""
    store, name = Store(url), f".lockstep-{token}"
    store.write(name, token.encode())
    try:
        if store.read(name) != token.encode():
            raise StoreError(f"{url} does not return what was written.", "Try the store's own tools.")
    finally:
        store.remove([name])
    return None
