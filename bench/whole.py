"""Files that nobody finds in part."""

from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Writes a file at once: whoever is interrupted meanwhile, and then reads what there is, finds it as before or not at all."""
    new = path.with_name(path.name + ".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
