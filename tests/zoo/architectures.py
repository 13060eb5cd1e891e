"""Architectures that neocpu was not tuned for, by package.

A name is the package, a dot, and the package's own name of the architecture; of
segmentation_models_pytorch the decoder, a dash and the encoder, of transformers the class.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Architecture:
    """One network with random weights.

    - `name`: the name, for example ``timm.resnet50``.
    - `shape`: the shape of its float32 input: smaller than usual where the network allows it, to
      save time.
    """

    name: str
    shape: tuple[int, ...]


def _family(package: str, names: str, *shape: int) -> list[Architecture]:
    return [Architecture(f"{package}.{name}", shape) for name in names.split()]


TORCHVISION = [
    *_family(
        "torchvision",
        """convnext_tiny densenet121 efficientnet_b0 efficientnet_b3 efficientnet_v2_s
        googlenet mnasnet0_5 mnasnet1_3 mobilenet_v2 mobilenet_v3_large mobilenet_v3_small
        regnet_x_400mf regnet_x_3_2gf regnet_y_400mf regnet_y_1_6gf resnet18 resnet50
        resnext50_32x4d shufflenet_v2_x0_5 shufflenet_v2_x1_5 squeezenet1_0 squeezenet1_1
        wide_resnet50_2""",
        *(1, 3, 128, 128),
    ),
    *_family("torchvision", "inception_v3", 1, 3, 192, 192),
    *_family("torchvision", "alexnet vgg11_bn", 1, 3, 224, 224),
    *_family("torchvision", "vit_b_32 swin_t swin_v2_t maxvit_t", 1, 3, 224, 224),
    *_family(
        "torchvision",
        "fcn_resnet50 deeplabv3_mobilenet_v3_large deeplabv3_resnet50 lraspp_mobilenet_v3_large",
        *(1, 3, 128, 160),
    ),
    *_family("torchvision", "r3d_18 mc3_18 r2plus1d_18", 1, 3, 16, 64, 64),
    *_family("torchvision", "s3d", 1, 3, 16, 224, 224),
    *_family("torchvision", "mvit_v2_s", 1, 3, 16, 224, 224),
    *_family("torchvision", "raft_small", 1, 6, 128, 128),
    *_family(
        "torchvision",
        """retinanet_resnet50_fpn ssdlite320_mobilenet_v3_large ssd300_vgg16 fcos_resnet50_fpn
        fasterrcnn_mobilenet_v3_large_320_fpn maskrcnn_resnet50_fpn keypointrcnn_resnet50_fpn""",
        *(1, 3, 160, 160),
    ),
]

TIMM = [
    *_family(
        "timm",
        """adv_inception_v3 bat_resnext26ts botnet26t_256 cait_xxs24_224 coat_lite_tiny
        coatnet_nano_rw_224 convit_tiny convmixer_768_32 convnextv2_atto crossvit_tiny_240
        cs3darknet_s cspdarknet53 cspresnet50 darknet53 deit_tiny_patch16_224 dla34 dla60x_c
        dm_nfnet_f0 dpn68 eca_nfnet_l0 ecaresnet26t edgenext_xx_small efficientformer_l1
        efficientformerv2_s0 efficientnet_lite0 efficientvit_b0 efficientvit_m0 ese_vovnet19b_dw
        fastvit_t8 fbnetc_100 focalnet_tiny_srf gcresnet33ts gernet_s ghostnet_100 ghostnetv2_100
        gmixer_24_224 gmlp_s16_224 halonet26t hardcorenas_a haloregnetz_b hgnet_tiny hgnetv2_b0
        hrnet_w18_small inception_next_atto inception_resnet_v2 inception_v4 lambda_resnet26t
        lcnet_050 legacy_senet154 legacy_seresnet18 levit_128s maxvit_nano_rw_256 mixer_s32_224
        mixnet_s mobilenetv3_rw mobilenetv4_conv_small mobileone_s0 mobilevit_xxs mobilevitv2_050
        nasnetalarge nest_tiny nextvit_small nf_regnet_b1 pit_ti_224 pnasnet5large poolformer_s12
        pvt_v2_b0 regnetv_040 regnetx_002 regnety_002 regnetz_b16 repghostnet_050 repvgg_a0
        repvit_m0_9 res2net50_26w_4s resmlp_12_224 resnest14d resnet18d resnetblur18 resnetrs50
        resnetv2_50 rexnet_100 sebotnet33ts_256 selecsls42b semnasnet_075 seresnext26d_32x4d
        shvit_s1 skresnet18 spnasnet_100 starnet_s1 swiftformer_xs swin_tiny_patch4_window7_224
        swinv2_cr_tiny_224 tf_efficientnet_b0 tf_efficientnetv2_b0 tf_mixnet_s
        tf_mobilenetv3_small_075 tiny_vit_5m_224 tinynet_e tnt_s_patch16_224 tresnet_m
        twins_pcpvt_small vgg11 visformer_tiny vit_tiny_patch16_224 volo_d1_224 wide_resnet50_2
        xception41 xcit_nano_12_p16_224""",
        *(1, 3, 0, 0),
    )
]

SEGMENTATION = _family(
    "smp",
    """unet-resnet18 unetplusplus-mobilenet_v2 manet-resnet18 linknet-resnet18 fpn-efficientnet-b0
    pspnet-resnet18 pan-resnet18 deeplabv3-resnet18 deeplabv3plus-mobilenet_v2 upernet-resnet18
    segformer-mit_b0 dpt-tu-vit_base_patch16_224.augreg_in21k unet-timm-mobilenetv3_small_075""",
    *(1, 3, 128, 128),
)

ULTRALYTICS = _family(
    "ultralytics",
    """yolov3-tiny yolov5n yolov5n6 yolov6n yolov8n yolov8n-cls yolov8n-obb yolov8n-p2 yolov8n-pose
    yolov8n-seg yolov8-ghost yolov8-rtdetr yolov9t yolov10n yolo11n yolo11n-cls yolo11n-seg
    yolo12n rtdetr-resnet50""",
    *(1, 3, 128, 128),
)

TRANSFORMERS = [
    *_family(
        "transformers",
        """BeitForImageClassification BitForImageClassification CLIPVisionModel
        ConvNextForImageClassification ConvNextV2ForImageClassification CvtForImageClassification
        DeiTForImageClassification Dinov2ForImageClassification DPTForDepthEstimation
        EfficientNetForImageClassification FocalNetForImageClassification GLPNForDepthEstimation
        HieraForImageClassification LevitForImageClassification MobileNetV1ForImageClassification
        MobileNetV2ForImageClassification MobileViTForImageClassification
        MobileViTV2ForSemanticSegmentation PoolFormerForImageClassification
        PvtForImageClassification PvtV2ForImageClassification RegNetForImageClassification
        ResNetForImageClassification RTDetrForObjectDetection SegformerForSemanticSegmentation
        SiglipVisionModel Swin2SRForImageSuperResolution SwinForImageClassification
        Swinv2ForImageClassification TextNetForImageClassification ViTForImageClassification
        ViTMSNForImageClassification YolosForObjectDetection""",
        *(1, 3, 0, 0),
    )
]

EFFICIENTNET_LITE = _family("efficientnet_lite", "lite0", 1, 3, 224, 224)
"""Pretrained architectures."""

ARCHITECTURES = [
    *TORCHVISION,
    *TIMM,
    *SEGMENTATION,
    *ULTRALYTICS,
    *TRANSFORMERS,
    *EFFICIENTNET_LITE,
]
"""All architectures. A side of 0 stands for the network's own size."""

EXPORTERS = ("dynamo", "torchscript")
"""PyTorch's exporters: by `torch.export`, and by tracing."""
