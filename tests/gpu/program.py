"""Copies the program that `cargo test --no-run --message-format=json`, read from the input, has built."""

import json
import shutil
import sys

built = [json.loads(line) for line in sys.stdin if line.startswith("{")]
programs = [message["executable"] for message in built if message.get("executable")]
if len(programs) != 1:
    sys.exit(f"expected one program, and got {programs}")
shutil.copy(programs[0], sys.argv[1])
