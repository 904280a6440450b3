"""Writes Fashion-MNIST as class folders of PNG files, as people keep their images: fashion_files.py DIR [--images N]

Reads the IDX file of Debian's package dataset-fashion-mnist (--from names another).
"""

import argparse
import gzip
import pathlib

import numpy as np
from PIL import Image

CLASSES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle-boot")


def idx(path, header):
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), np.uint8, offset=header)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--images", type=int, default=60_000)
    parser.add_argument("--from", dest="origin", type=pathlib.Path, default="/usr/share/datasets/fashion-mnist")
    arguments = parser.parse_args()
    images = idx(arguments.origin / "train-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28)
    labels = idx(arguments.origin / "train-labels-idx1-ubyte.gz", 8)
    for name in CLASSES:
        (arguments.directory / name).mkdir(parents=True, exist_ok=True)
    for number, (image, label) in enumerate(zip(images[:arguments.images], labels)):
        Image.fromarray(image).save(arguments.directory / CLASSES[label] / f"{number:05}.png")


main()
