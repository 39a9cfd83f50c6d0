"""The window: regions, budgets, eviction, assembly, attribution. Pure and synchronous.

Values in, values out: no task, no clock, no I/O. How a window becomes a request starts at `assemble`; what changes it
starts at `Window.plan_write`, and only `Window.apply` changes it.
"""

from shoal.runtime.context._amend import Ways, plan_prompt, planned_tokens
from shoal.runtime.context._assemble import FRAMING_TOKENS, TOOLS, Part, Prompt, assemble
from shoal.runtime.context._budget import Limits, resolve
from shoal.runtime.context._calibration import Calibration
from shoal.runtime.context._calls import REGION_HOOKS, Hook, ScriptCall, Value
from shoal.runtime.context._changes import (
    WHOLE,
    BudgetChange,
    Change,
    ContextCompacted,
    EntriesEvicted,
    EntriesReleased,
    EntryKind,
    EntryWritten,
    ItemChanged,
    LayoutChanged,
    PartStored,
    PromptAmended,
    PromptChange,
    PromptEpoch,
    RegionReset,
    SeedBlock,
    SeedRefreshed,
    SeedResolved,
)
from shoal.runtime.context._components import Components, ContextComponent, Facts, Layer, Surroundings, stand, tagged
from shoal.runtime.context._cut import cut_to, fit_blocks, materialise, named
from shoal.runtime.context._desk import Answer, Origin
from shoal.runtime.context._entry import Draft, Entry, Group, estimate, estimate_text
from shoal.runtime.context._epoch import Epoch
from shoal.runtime.context._layout import (
    CONVERSATION,
    FINAL_OUTPUT,
    INSTRUCTIONS,
    Layout,
    declared,
    layout_of,
    names_of,
    prompt_of,
)
from shoal.runtime.context._observe import Edges, Knobs, View
from shoal.runtime.context._operations import OPERATIONS, operate
from shoal.runtime.context._plan import Order, Plan
from shoal.runtime.context._plan_custom import NOTHING_SAID, Said
from shoal.runtime.context._render import Theme
from shoal.runtime.context._routing import Destination, destination, pointer, where_stands
from shoal.runtime.context._said import (
    ACCEPTED,
    Misread,
    Rendering,
    Wrote,
    load_rendering,
    read_overflow,
    read_render,
    read_write,
)
from shoal.runtime.context._shelf import LoadPart, Shelf, nowhere
from shoal.runtime.context._shipped import (
    DATE,
    DEFERRED_TOOLS,
    ENVIRONMENT,
    GIT_FLAG,
    MEMORY,
    PROJECT_CHARS,
    PROJECT_FILES,
    SHIPPED,
)
from shoal.runtime.context._store import Item, RegionState
from shoal.runtime.context._taking import said_by
from shoal.runtime.context._told import declared_stable
from shoal.runtime.context._window import Window
from shoal.runtime.context.attribution import (
    OVERHEAD,
    REPLY_REASONING,
    REPLY_TEXT,
    Share,
    attribute,
    cost_of,
    rates_of,
)

__all__ = [
    "ACCEPTED",
    "CONVERSATION",
    "DATE",
    "DEFERRED_TOOLS",
    "ENVIRONMENT",
    "FINAL_OUTPUT",
    "FRAMING_TOKENS",
    "GIT_FLAG",
    "INSTRUCTIONS",
    "MEMORY",
    "NOTHING_SAID",
    "OPERATIONS",
    "OVERHEAD",
    "PROJECT_CHARS",
    "PROJECT_FILES",
    "REGION_HOOKS",
    "REPLY_REASONING",
    "REPLY_TEXT",
    "SHIPPED",
    "TOOLS",
    "WHOLE",
    "Answer",
    "BudgetChange",
    "Calibration",
    "Change",
    "Components",
    "ContextCompacted",
    "ContextComponent",
    "Destination",
    "Draft",
    "Edges",
    "EntriesEvicted",
    "EntriesReleased",
    "Entry",
    "EntryKind",
    "EntryWritten",
    "Epoch",
    "Facts",
    "Group",
    "Hook",
    "Item",
    "ItemChanged",
    "Knobs",
    "Layer",
    "Layout",
    "LayoutChanged",
    "Limits",
    "LoadPart",
    "Misread",
    "Order",
    "Origin",
    "Part",
    "PartStored",
    "Plan",
    "Prompt",
    "PromptAmended",
    "PromptChange",
    "PromptEpoch",
    "RegionReset",
    "RegionState",
    "Rendering",
    "Said",
    "ScriptCall",
    "SeedBlock",
    "SeedRefreshed",
    "SeedResolved",
    "Share",
    "Shelf",
    "Surroundings",
    "Theme",
    "Value",
    "View",
    "Ways",
    "Window",
    "Wrote",
    "assemble",
    "attribute",
    "cost_of",
    "cut_to",
    "declared",
    "declared_stable",
    "destination",
    "estimate",
    "estimate_text",
    "fit_blocks",
    "layout_of",
    "load_rendering",
    "materialise",
    "named",
    "names_of",
    "nowhere",
    "operate",
    "plan_prompt",
    "planned_tokens",
    "pointer",
    "prompt_of",
    "rates_of",
    "read_overflow",
    "read_render",
    "read_write",
    "resolve",
    "said_by",
    "stand",
    "tagged",
    "where_stands",
]
