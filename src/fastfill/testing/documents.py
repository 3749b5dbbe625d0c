"""Documents: small named blobs."""

from __future__ import annotations

from fastfill.testing.world import StoreChecks


class DocumentChecks(StoreChecks):
    """A document is written only by whoever knows its version."""

    def test_documents_are_replaced_by_compare_and_set(self) -> None:
        """A document is written only by whoever knows its version."""
        store, _ = self.both()
        assert store.load("a/1") is None
        assert store.save("a/1", b"\x00one'", 0)
        assert not store.save("a/1", b"late", 0)
        document = store.load("a/1")
        assert document is not None
        assert document.value == b"\x00one'"
        assert store.save("a/1", b"two", document.version)
        assert not store.save("a/1", b"three", document.version)
        assert not store.save("a/9", b"nine", 5)
        latest = store.load("a/1")
        assert latest is not None
        assert latest.value == b"two"

    def test_documents_are_listed_and_removed(self) -> None:
        """Names are listed by prefix and in order; removing what is not there is no error."""
        store, _ = self.both()
        for name in ("b/2", "a_1", "b/1", "b%"):
            assert store.save(name, b"-", 0)
        assert store.names("b/") == ["b/1", "b/2"]
        store.remove(["b/1", "c"])
        assert store.names("b") == ["b%", "b/2"]
        assert store.save("b/1", b"again", 0)
