"""torchmetrics: a metric of every family, over batches, in collections, by classes, with bootstraps."""
import torch
import torchmetrics as tm
from torchmetrics import functional as fn

from tests.programs import array, tokens, tolerance

PACKAGES = ["torchmetrics"]
QUICK = True


def _labelled(seed=0):
    return array(40, 5, seed=seed).softmax(1), tokens(40, below=5, seed=seed + 1)


def _over(metric, *batches):
    """What a metric says of each batch, and of all of them; and again after a reset."""
    each = [metric(*batch) for batch in batches]
    whole = metric.compute()
    metric.reset()
    metric.update(*batches[0])
    return {"each": each, "whole": whole, "again": metric.compute()}


def classification():
    """Accuracy, precision, recall, F, AUROC, confusion, calibration, of classes, of two, of labels."""
    one, other = _labelled(), _labelled(2)
    two = (array(30).sigmoid(), tokens(30, below=2)), (array(30, seed=3).sigmoid(), tokens(30, below=2, seed=4))
    many = (array(20, 3).sigmoid(), tokens(20, 3, below=2)), (array(20, 3, seed=1).sigmoid(), tokens(20, 3, below=2,
                                                                                                     seed=2))
    of = {"task": "multiclass", "num_classes": 5}
    found = {}
    for name in ("Accuracy", "Precision", "Recall", "F1Score", "Specificity", "JaccardIndex", "MatthewsCorrCoef",
                 "CohenKappa", "AUROC", "AveragePrecision", "CalibrationError", "HammingDistance", "StatScores"):
        found[name] = _over(getattr(tm, name)(**of), one, other)
    found["by class"] = _over(tm.Accuracy(average=None, **of), one, other)
    found["top 2"] = _over(tm.Accuracy(top_k=2, average="micro", **of), one, other)
    found["confusion"] = _over(tm.ConfusionMatrix(normalize="true", **of), one, other)
    for name in ("Accuracy", "F1Score", "AUROC", "AveragePrecision", "ROC", "PrecisionRecallCurve"):
        options = {} if name in ("Accuracy", "F1Score") else {"thresholds": 7}
        found[f"two {name}"] = _over(getattr(tm, name)(task="binary", **options), *two)
        found[f"many {name}"] = _over(getattr(tm, name)(task="multilabel", num_labels=3, **options), *many)
    found["curve"] = _over(tm.ROC(task="binary"), *two)
    return found


def regression():
    """Errors, correlations, scores of numbers."""
    batches = [(array(30, seed=n), array(30, seed=n) + 0.5 * array(30, seed=n + 10)) for n in (0, 1)]
    found = {name: _over(getattr(tm, name)(), *batches) for name in (
        "MeanSquaredError", "MeanAbsoluteError", "R2Score", "ExplainedVariance", "PearsonCorrCoef", "SpearmanCorrCoef",
        "ConcordanceCorrCoef", "KendallRankCorrCoef", "MeanAbsolutePercentageError", "LogCoshError",
        "RelativeSquaredError",
        "SymmetricMeanAbsolutePercentageError")}
    rows = [(array(6, 5, seed=n).softmax(1), array(6, 5, seed=n + 3).softmax(1)) for n in (0, 1)]
    found["divergence"] = _over(tm.KLDivergence(), *rows)
    found["cosine"] = _over(tm.CosineSimilarity(reduction="mean"), *rows)
    return found


@tolerance(1e-4, "the structural similarity of unrelated pictures is what numbers around one leave, a thousandth")
def images():
    """SSIM, PSNR and their kin."""
    from torchmetrics import image
    batches = [(array(2, 3, 24, 24, seed=n).sigmoid(), array(2, 3, 24, 24, seed=n + 5).sigmoid()) for n in (0, 1)]
    return {"ssim": _over(image.StructuralSimilarityIndexMeasure(data_range=1.0), *batches),
            "psnr": _over(image.PeakSignalNoiseRatio(data_range=1.0), *batches),
            "total variation": _over(image.TotalVariation(), *[batch[:1] for batch in batches]),
            "uqi": _over(image.UniversalImageQualityIndex(), *batches), "sam": _over(image.SpectralAngleMapper(),
                                                                                     *batches),
            "ergas": _over(image.ErrorRelativeGlobalDimensionlessSynthesis(), *batches),
            "gradients": fn.image.image_gradients(batches[0][0])}


def texts():
    """BLEU, ROUGE's parts, edit distances, perplexity."""
    from torchmetrics import text
    said, meant = ["the cat sat on the mat", "a dog barks loudly"], [["the cat is on the mat"],
                                                                     ["the dog barks loudly"]]
    flat = [line for lines in meant for line in lines]
    return {"bleu": _over(text.BLEUScore(n_gram=2), (said, meant)), "chrf": _over(text.CHRFScore(), (said, meant)),
            "words": _over(text.WordErrorRate(), (said, flat)), "characters": _over(text.CharErrorRate(), (said, flat)),
            "edits": _over(text.EditDistance(), (said, flat)), "sacre": _over(text.SacreBLEUScore(), (said, meant)),
            "perplexity": _over(text.Perplexity(), (array(2, 7, 9), tokens(2, 7, below=9)))}


def retrieval():
    """Precision, rank and gain of what was found, by query."""
    batches = [(array(20, seed=n).sigmoid(), tokens(20, below=2, seed=n + 1), torch.arange(20) // 5) for n in (0, 5)]
    found = {}
    for name in ("RetrievalMAP", "RetrievalMRR", "RetrievalPrecision", "RetrievalRecall", "RetrievalNormalizedDCG",
                 "RetrievalHitRate", "RetrievalFallOut"):
        metric = getattr(tm.retrieval, name)()
        for scores, relevant, queries in batches:
            metric.update(scores, relevant, indexes=queries)
        found[name] = metric.compute()
    return found


def detection():
    """Overlaps of boxes."""
    from torchmetrics.detection import GeneralizedIntersectionOverUnion, IntersectionOverUnion, PanopticQuality
    boxes = torch.tensor([[10.0, 10, 50, 60], [20, 30, 60, 70]])
    said = [{"boxes": boxes + 3, "scores": torch.tensor([0.9, 0.6]), "labels": torch.tensor([0, 1])}]
    meant = [{"boxes": boxes, "labels": torch.tensor([0, 1])}]
    panoptic = PanopticQuality(things={0, 1}, stuffs={6})
    there = torch.tensor([[[[6, 0], [0, 0], [6, 0], [6, 0]], [[0, 0], [0, 0], [6, 0], [0, 1]]]])
    return {"iou": _over(IntersectionOverUnion(), (said, meant)), "giou": _over(GeneralizedIntersectionOverUnion(),
                                                                                (said, meant)),
            "panoptic": _over(panoptic, (there, there.flip(1)))}


def clustering_and_segmentation():
    """Scores of clusters and of masks; of audio and of nominal data."""
    from torchmetrics import audio, clustering, nominal, segmentation
    groups = tokens(30, below=4), tokens(30, below=4, seed=1)
    masks = tokens(2, 3, 8, 8, below=2), tokens(2, 3, 8, 8, below=2, seed=1)
    sounds = array(2, 400), array(2, 400) + 0.1 * array(2, 400, seed=1)
    pairs = {name: _over(getattr(clustering, name)(), groups) for name in (
        "RandScore", "AdjustedRandScore", "MutualInfoScore", "AdjustedMutualInfoScore", "NormalizedMutualInfoScore",
        "FowlkesMallowsIndex", "HomogeneityScore", "CompletenessScore", "VMeasureScore")}
    return {"pairs": pairs, "calinski": _over(clustering.CalinskiHarabaszScore(), (array(30, 3), groups[0])),
            "dice": _over(segmentation.GeneralizedDiceScore(num_classes=3), masks),
            "mean iou": _over(segmentation.MeanIoU(num_classes=3), masks),
            "snr": _over(audio.SignalNoiseRatio(), sounds),
            "sdr": _over(audio.ScaleInvariantSignalDistortionRatio(), sounds),
            "cramer": _over(nominal.CramersV(4), groups), "theil": _over(nominal.TheilsU(4), groups)}


def together():
    """Collections, means, bootstraps, running windows, minima and maxima, one metric for each output."""
    one, other = _labelled(), _labelled(2)
    every = tm.MetricCollection({"accuracy": tm.Accuracy(task="multiclass", num_classes=5),
                                 "recall": tm.Recall(task="multiclass", num_classes=5, average="macro")}, prefix="val_")
    mean, largest = tm.MeanMetric(), tm.MaxMetric()
    for value in (1.0, 4.0, 2.0):
        mean.update(value, weight=value)
        largest.update(torch.tensor(value))
    by_class = tm.ClasswiseWrapper(tm.Accuracy(task="multiclass", num_classes=5, average=None))
    outputs = tm.MultioutputWrapper(tm.MeanSquaredError(), 2)
    tracked = tm.MetricTracker(tm.MeanSquaredError(), maximize=False)
    for n in range(3):
        tracked.increment()
        tracked.update(array(8, seed=n), array(8, seed=n + 7))
    summed = tm.MeanSquaredError() + tm.MeanAbsoluteError()
    summed.update(array(8), array(8, seed=1))
    strapped = tm.BootStrapper(tm.MeanSquaredError(), num_bootstraps=4)
    strapped.update(array(20), array(20, seed=1))
    return {"collection": _over(every, one, other), "mean": mean.compute(), "largest": largest.compute(),
            "by class": by_class(*one), "outputs": outputs(array(6, 2), array(6, 2, seed=1)),
            "best": [float(v) for v in tracked.best_metric(return_step=True)], "sum": summed.compute(),
            "strapped": strapped.compute(), "state": sorted(tm.Accuracy(task="binary").metric_state),
            "functional": [fn.accuracy(*one, task="multiclass", num_classes=5), fn.pairwise_cosine_similarity(array(4,
                                                                                                                    3)),
                           fn.pairwise_euclidean_distance(array(4, 3), array(2, 3, seed=1))]}


def in_modules():
    """Metrics as parts of modules: moved, saved, differentiated, copied."""
    import copy

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.error = tm.MeanSquaredError()

    net = Net()
    net.error.persistent(True)
    x = array(6).requires_grad_()
    net.error(x, array(6, seed=1)).backward()
    net.error.reset()
    net.error.update(array(6), array(6, seed=1))
    again = Net()
    again.error.persistent(True)
    again.load_state_dict(copy.deepcopy(net).state_dict())
    return {"gradient": x.grad, "keys": list(net.state_dict()), "loaded": again.error.compute(),
            "double": net.error.set_dtype(torch.float64).compute(), "hash": hash(net.error) != hash(again.error)}
