"""Trains a small CNN on folders of images, as most PyTorch scripts do: train.py DIR [--tierd] [--epochs N]

Prints the loss of each epoch, in every digit. With --tierd the images come through tierd.torch; nothing else changes, the losses least of all.
"""

import argparse
import os
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


def to_tensor(image):
    return torch.from_numpy(np.asarray(image.convert("L"), np.float32) / 255).unsqueeze(0)


class Folder(Dataset):
    """What a user without torchvision writes."""

    def __init__(self, root):
        classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        self.samples = [(os.path.join(root, name, file), label) for label, name in enumerate(classes) for file in sorted(os.listdir(os.path.join(root, name)))]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        with Image.open(path) as image:
            return to_tensor(image), label


def model():
    return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Dropout(0.2), nn.Linear(32 * 7 * 7, 10))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("--tierd", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    torch.use_deterministic_algorithms(True)

    if arguments.tierd:
        import tierd.torch
        dataset = tierd.torch.ImageFolder(arguments.directory, transform=to_tensor)
    else:
        dataset = Folder(arguments.directory)
    loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=arguments.workers)
    if arguments.tierd:
        tierd.torch.announce(loader, dataset, epochs=arguments.epochs)

    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(arguments.epochs):
        start, total = time.monotonic(), 0.0
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
        print(f"epoch {epoch} loss {(total / len(dataset)).hex()} {total / len(dataset):.4f} seconds {time.monotonic() - start:.2f}", flush=True)


if __name__ == "__main__":
    main()
