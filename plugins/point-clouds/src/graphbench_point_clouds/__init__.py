"""Networks for point clouds: clouds stay independent, and the order of their points does not matter."""

from graphbench_point_clouds.canonical import CNDGCNN, CNPointNet
from graphbench_point_clouds.dgcnn import DGCNN
from graphbench_point_clouds.point_transformer import PointTransformer
from graphbench_point_clouds.pointcnn import PointCNN
from graphbench_point_clouds.pointconv import PointConv
from graphbench_point_clouds.pointnet import PointNet
from graphbench_point_clouds.pointnet_plus_plus import PointNetPlusPlus
from graphbench_point_clouds.sequoia import PointSequoia
from graphbench_point_clouds.set_transformer import SetTransformer
from graphbench_point_clouds.vn_networks import VNDGCNN, VNPointNet

__all__ = [
    "CNDGCNN",
    "DGCNN",
    "VNDGCNN",
    "CNPointNet",
    "PointCNN",
    "PointConv",
    "PointNet",
    "PointNetPlusPlus",
    "PointSequoia",
    "PointTransformer",
    "SetTransformer",
    "VNPointNet",
]
