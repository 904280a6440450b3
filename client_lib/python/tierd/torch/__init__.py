"""tierd for PyTorch: data sets that read through the cache, and `announce`, which tells it the order to come.

    dataset = tierd.torch.ImageFolder("/pfs/train", transform=...)
    loader = torch.utils.data.DataLoader(dataset, batch_size=256, shuffle=True, num_workers=8)
    with tierd.torch.announce(loader, dataset, epochs=90):
        for epoch in range(90):
            for images, labels in loader: ...

Works with fork, spawn and forkserver workers, persistent workers and pin_memory. Needs PyTorch 1.13 or later (batched reads: `__getitems__`); Pillow only for the default
decoder of ImageFolder; torchvision for nothing.
"""

from ._announce import Announcement, announce
from ._datasets import IMG_EXTENSIONS, DatasetFolder, FileDataset, ImageFolder, pil_decode
from ._draws import TorchDraws
from ._sampler import plan_of

__all__ = ["IMG_EXTENSIONS", "Announcement", "DatasetFolder", "FileDataset", "ImageFolder", "TorchDraws", "announce", "pil_decode", "plan_of"]
