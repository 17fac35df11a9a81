"""PTX as text: files, entries and instructions, parsed strictly."""
