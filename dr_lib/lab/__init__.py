"""The lab: a recipe becomes a pipeline of stages, runs leave records, studies sweep."""

from dr_lib.lab import trainings
from dr_lib.lab.base import BaseRecipe, TextSource, build_base
from dr_lib.lab.checks import fitted
from dr_lib.lab.cluster import Cluster
from dr_lib.lab.inputs import Checkpoint, Inputs, Shape, open_checkpoint
from dr_lib.lab.pipeline import Plan, pipeline
from dr_lib.lab.recipe import (
    AuxiliarySettings,
    CollectionSettings,
    EvaluationSettings,
    MiningSettings,
    NegativesSettings,
    ObjectiveSettings,
    PaqPairsSettings,
    Pretraining,
    PseudoLabelsSettings,
    Recipe,
    RedditPairsSettings,
    RerankingSettings,
    open_collection,
    open_sample,
    recipe_at,
)
from dr_lib.lab.records import (
    Record,
    commit,
    epoch,
    live_folder,
    load_record,
    load_records,
    models_of,
    publish,
    ranking_of,
    recorded_folder,
    stage_folder,
)
from dr_lib.lab.study import Run, Study, StudyError, StudyResult, execute, measured, zero_shot
from dr_lib.settings import check_parameters
from dr_lib.stages import Cache, Data, Part, Stage, stage
