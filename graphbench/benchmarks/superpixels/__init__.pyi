from .base import SuperpixelBenchmark as SuperpixelBenchmark
from .mnist_cifar import CIFAR10Superpixels as CIFAR10Superpixels
from .mnist_cifar import DigitsSuperpixels as DigitsSuperpixels
from .mnist_cifar import MNISTSuperpixels as MNISTSuperpixels
from .own_images import Superpixels as Superpixels
from .satellite import SatelliteSuperpixels as SatelliteSuperpixels
