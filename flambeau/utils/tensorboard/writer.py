"""`SummaryWriter`: event files for TensorBoard, in the folder of a run."""
import os
import socket
import time
from datetime import datetime

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event, SessionLog, TaggedRunMetadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from ...base.errors import here, line_of
from ...base.paths import inside
from . import summary as summaries
from .embedding import Projector
from .graph import graph


class FileWriter:
    """One event file."""

    def __init__(self, log_dir, max_queue=10, flush_secs=120, filename_suffix=""):
        self.event_writer = EventFileWriter(str(log_dir), max_queue, flush_secs, filename_suffix)

    def get_logdir(self):
        """The folder that the file is in."""
        return self.event_writer.get_logdir()

    def add_event(self, event, step=None, walltime=None):
        """Write an `Event`, at a step and a time."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_graph(self, graph_profile, walltime=None):
        """Write a graph, and what is known of the run of it: (GraphDef, RunMetadata)."""
        made, stats = graph_profile
        self.add_event(Event(graph_def=made.SerializeToString()), None, walltime)
        self.add_event(Event(tagged_run_metadata=TaggedRunMetadata(
            tag="step1", run_metadata=stats.SerializeToString())), None, walltime)

    def add_summary(self, summary, global_step=None, walltime=None):
        """Write a `Summary` as an event of its own."""
        self.add_event(Event(summary=summary), global_step, walltime)

    def flush(self):
        """Have everything in the file."""
        self.event_writer.flush()

    def close(self):
        """Have everything in the file, and close it."""
        self.event_writer.close()

    def reopen(self):
        """Go on in a new file of the same folder."""
        self.event_writer.reopen()


class SummaryWriter:
    """Writes what a training reports into `log_dir`; TensorBoard shows it.

    Without `log_dir`, the folder is below `runs`, named after the time, the machine and `comment`. What was written at
    `purge_step` and later, before a run was resumed, TensorBoard no longer shows.
    """

    def __init__(self, log_dir=None, comment="", purge_step=None, max_queue=10, flush_secs=120, filename_suffix=""):
        if not log_dir:
            log_dir = os.path.join("runs", f"{datetime.now():%b%d_%H-%M-%S}_{socket.gethostname()}{comment}")
        self.log_dir, self.purge_step = log_dir, purge_step
        self.max_queue, self.flush_secs, self.filename_suffix = max_queue, flush_secs, filename_suffix
        self.file_writer = self.all_writers = None
        self.default_bins = summaries.default_bins()
        self._projector = None
        self._get_file_writer()

    def _get_file_writer(self):
        """The writer of the run's own file; a new one after `close`."""
        if self.file_writer is None:
            self.file_writer = self._new_writer(self.log_dir)
            self.all_writers = {self.file_writer.get_logdir(): self.file_writer}
            if self.purge_step is not None:
                started = SessionLog(status=SessionLog.START)
                self.file_writer.add_event(Event(step=self.purge_step, file_version="brain.Event:2"))
                self.file_writer.add_event(Event(step=self.purge_step, session_log=started))
                self.purge_step = None
        return self.file_writer

    def _new_writer(self, folder):
        return FileWriter(folder, self.max_queue, self.flush_secs, self.filename_suffix)

    def _add(self, made, global_step=None, walltime=None):
        self._get_file_writer().add_summary(made, global_step, walltime)

    def get_logdir(self):
        """The folder of the run."""
        return self.log_dir

    # --- numbers ---

    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None, new_style=False, double_precision=False):
        """One number of the series `tag`."""
        self._add(summaries.scalar(tag, scalar_value, new_style, double_precision), global_step, walltime)

    def add_scalars(self, main_tag, tag_scalar_dict, global_step=None, walltime=None):
        """Numbers of several series that are shown in one chart, each in a folder of its own."""
        walltime = time.time() if walltime is None else walltime
        folder = self._get_file_writer().get_logdir()
        for tag, value in tag_scalar_dict.items():
            path = inside(folder, f"{main_tag.replace('/', '_')}_{tag}", "main_tag and tag")
            if path not in self.all_writers:
                self.all_writers[path] = self._new_writer(path)
            self.all_writers[path].add_summary(summaries.scalar(main_tag, value), global_step, walltime)

    def add_histogram(self, tag, values, global_step=None, bins="tensorflow", walltime=None, max_bins=None):
        """How `values` are spread. `bins` is what `numpy.histogram` takes, or "tensorflow"."""
        bins = self.default_bins if isinstance(bins, str) and bins == "tensorflow" else bins
        self._add(summaries.histogram(tag, values, bins, max_bins), global_step, walltime)

    def add_histogram_raw(self, tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts, global_step=None,
                          walltime=None):
        """A histogram that was counted elsewhere."""
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        self._add(summaries.histogram_raw(tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts),
                  global_step, walltime)

    def add_pr_curve(self, tag, labels, predictions, global_step=None, num_thresholds=127, weights=None,
                     walltime=None):
        """Precision over recall."""
        self._add(summaries.pr_curve(tag, labels, predictions, num_thresholds, weights), global_step, walltime)

    def add_pr_curve_raw(self, tag, true_positive_counts, false_positive_counts, true_negative_counts,
                         false_negative_counts, precision, recall, global_step=None, num_thresholds=127, weights=None,
                         walltime=None):
        """Precision over recall, counted elsewhere; `weights` is not used, as in PyTorch."""
        self._add(summaries.pr_curve_raw(tag, true_positive_counts, false_positive_counts, true_negative_counts,
                                         false_negative_counts, precision, recall, num_thresholds),
                  global_step, walltime)

    def add_hparams(self, hparam_dict, metric_dict, hparam_domain_discrete=None, run_name=None, global_step=None):
        """The settings of a run and what it came to, in a folder of their own."""
        if type(hparam_dict) is not dict or type(metric_dict) is not dict:
            raise TypeError("hparam_dict and metric_dict should be dictionary.")
        made = summaries.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = inside(self._get_file_writer().get_logdir(), run_name or str(time.time()), "run_name")
        with SummaryWriter(folder) as writer:
            for each in made:
                writer._add(each, global_step)
            for name, value in metric_dict.items():
                writer.add_scalar(name, value, global_step)

    # --- pictures and texts ---

    def add_image(self, tag, img_tensor, global_step=None, walltime=None, dataformats="CHW"):
        """A picture; needs Pillow."""
        self._add(summaries.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_images(self, tag, img_tensor, global_step=None, walltime=None, dataformats="NCHW"):
        """Several pictures in a grid; needs Pillow."""
        self._add(summaries.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_figure(self, tag, figure, global_step=None, close=True, walltime=None):
        """A figure of matplotlib, or a list of them, drawn."""
        if isinstance(figure, list):
            self.add_image(tag, np.stack([summaries.drawn(each, close) for each in figure]), global_step, walltime,
                           dataformats="NCHW")
        else:
            self.add_image(tag, summaries.drawn(figure, close), global_step, walltime, dataformats="CHW")

    def add_image_with_boxes(self, tag, img_tensor, box_tensor, global_step=None, walltime=None, rescale=1,
                             dataformats="CHW", labels=None):
        """A picture with boxes (left, top, right, bottom) in it, and their labels; needs Pillow."""
        labels = [labels] if isinstance(labels, str) else labels
        self._add(summaries.image_boxes(tag, img_tensor, box_tensor, rescale, dataformats, labels), global_step,
                  walltime)

    def add_video(self, tag, vid_tensor, global_step=None, fps=4, walltime=None):
        """Pictures in time (n, time, colours, height, width), as a moving GIF; needs Pillow."""
        self._add(summaries.video(tag, vid_tensor, fps), global_step, walltime)

    def add_audio(self, tag, snd_tensor, global_step=None, sample_rate=44100, walltime=None):
        """A sound of one channel, numbers from -1 to 1."""
        self._add(summaries.audio(tag, snd_tensor, sample_rate), global_step, walltime)

    def add_mesh(self, tag, vertices, colors=None, faces=None, config_dict=None, global_step=None, walltime=None):
        """Points in space (n, points, 3), with colours, and triangles between them."""
        self._add(summaries.mesh(tag, vertices, colors, faces, config_dict), global_step, walltime)

    def add_tensor(self, tag, tensor, global_step=None, walltime=None):
        """A whole tensor, bit for bit."""
        self._add(summaries.tensor_proto(tag, tensor), global_step, walltime)

    def add_text(self, tag, text_string, global_step=None, walltime=None):
        """A text."""
        self._add(summaries.text(tag, text_string), global_step, walltime)

    # --- the model ---

    def add_graph(self, model, input_to_model=None, verbose=False, use_strict_trace=True):
        """What a module does with an input, as a graph: the module is called once. `use_strict_trace` means nothing
        here, since calls are seen as they happen and containers may be changed."""
        if input_to_model is None:
            raise ValueError("add_graph(model): input_to_model is what the module is called with, a tensor or a tuple")
        self._get_file_writer().add_graph(graph(model, input_to_model, verbose))

    def add_embedding(self, mat, metadata=None, label_img=None, global_step=None, tag="default",
                      metadata_header=None):
        """Points (n, size) for the projector, with labels and small pictures (n, 3, height, width) where given."""
        mat = summaries.array_of(mat)
        if mat.ndim != 2:
            raise AssertionError("mat should be 2D, where mat.size(0) is the number of data points")
        if metadata is not None and len(metadata) != len(mat):
            raise AssertionError("#labels should equal with #data points")
        if label_img is not None and len(label_img) != len(mat):
            raise AssertionError("#images should equal with #data points")
        if self._projector is None:
            self._projector = Projector(self._get_file_writer().get_logdir())
        self._projector.add(mat, metadata, label_img, 0 if global_step is None else global_step, tag, metadata_header)

    def add_onnx_graph(self, prototxt):
        """Not here: raises NotImplementedError that says what to use instead."""
        raise NotImplementedError(f"Flambeau's SummaryWriter has no add_onnx_graph (used at {line_of(here())}): use "
                                  "tensorboardX.SummaryWriter, which writes the same files, or add_graph with the "
                                  "module.")

    # --- charts ---

    def add_custom_scalars(self, layout):
        """Charts of several series: {category: {title: ["Multiline" or "Margin", tags]}}."""
        self._add(summaries.custom_scalars(layout))

    def add_custom_scalars_multilinechart(self, tags, category="default", title="untitled"):
        """One chart of several series."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(self, tags, category="default", title="untitled"):
        """One chart of a series between a lower and an upper one."""
        if len(tags) != 3:
            raise AssertionError(f"Expected 3 tags, got {len(tags)}.")
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    # --- the file ---

    def flush(self):
        """Have everything in the files."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self):
        """Have everything in the files, and close them. Whatever is added later goes to new ones."""
        for writer in (self.all_writers or {}).values():
            writer.flush()
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

