"""Text that people have edited: editors and spreadsheets of some systems add a byte order mark, or write UTF-16."""

import codecs


def as_utf8(content: bytes) -> bytes:
    """Return text in UTF-8 without a byte order mark; raise UnicodeDecodeError for invalid UTF-16."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16").encode()
    return content.removeprefix(codecs.BOM_UTF8)
