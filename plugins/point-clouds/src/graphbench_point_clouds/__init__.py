"""Networks that read point clouds: each cloud on its own, whatever the order of its points."""

from graphbench_point_clouds.canonical import CNDGCNN as CNDGCNN
from graphbench_point_clouds.canonical import CNPointNet as CNPointNet
from graphbench_point_clouds.dgcnn import DGCNN as DGCNN
from graphbench_point_clouds.point_transformer import PointTransformer as PointTransformer
from graphbench_point_clouds.pointcnn import PointCNN as PointCNN
from graphbench_point_clouds.pointconv import PointConv as PointConv
from graphbench_point_clouds.pointnet import PointNet as PointNet
from graphbench_point_clouds.pointnet_plus_plus import PointNetPlusPlus as PointNetPlusPlus
from graphbench_point_clouds.sequoia import PointSequoia as PointSequoia
from graphbench_point_clouds.set_transformer import SetTransformer as SetTransformer
from graphbench_point_clouds.vn_networks import VNDGCNN as VNDGCNN
from graphbench_point_clouds.vn_networks import VNPointNet as VNPointNet

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
