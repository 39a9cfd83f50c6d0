"""Every mistake is refused with its id, on the line where it is: the one with the mark."""

from __future__ import annotations

import pytest
from bits import HEAD, found_in, marked_lines

SINGLE_VALUES = {
    "a kind that does not exist": ("bad-value", '[context.regions.r]\nkind = "pined" # <-'),
    "a kind that is no text": ("wrong-type", "[context.regions.r]\nkind = 3 # <-"),
    "a strategy with a hyphen": (
        "bad-value",
        '[context.regions.r]\nkind = "sliding_window"\nstrategy = "per-item" # <-',
    ),
    "an unknown admission": ("bad-value", '[context.regions.r]\nadmission = "refuse" # <-'),
    "an unknown volatility": ("bad-value", '[context.regions.r]\nvolatility = "still" # <-'),
    "an unknown placement": ("bad-value", '[context.regions.r]\nplacement = "head" # <-'),
    "a share without its sign": ("bad-value", '[context.regions.r]\nbudget = "35" # <-'),
    "a share that is a number": ("wrong-type", "[context.regions.r]\nbudget = 0.35 # <-"),
    "a share of nothing": ("bad-value", '[context.regions.r]\nbudget = "0%" # <-'),
    "a share above all": ("bad-value", '[context.regions.r]\nbudget = "100.5%" # <-'),
    "a share below nothing": ("bad-value", '[context.regions.r]\nbudget = "-5%" # <-'),
    "a share with a blank": ("bad-value", '[context.regions.r]\nbudget = "35 %" # <-'),
    "a share in words": ("bad-value", '[context.regions.r]\nkind = "compacting"\ncompact_at = "most" # <-'),
    "a ceiling below nothing": ("bad-value", "[context.regions.r]\nmax_tokens = -1 # <-"),
    "a ceiling of nothing": ("bad-value", "[context.regions.r]\nmax_tokens = 0 # <-"),
    "a ceiling that is no whole number": ("wrong-type", "[context.regions.r]\nmax_tokens = 1.5 # <-"),
    "a ceiling beyond 64 bits": ("bad-value", "[context.regions.r]\nmax_tokens = 99999999999999999999 # <-"),
    "a flag in quotes": ("wrong-type", '[context.regions.r]\nrequired = "true" # <-'),
    "a number for a flag": ("wrong-type", "[context.regions.r]\nrequired = 1 # <-"),
    "a flag for a number": ("wrong-type", "[context.regions.r]\nmax_tokens = true # <-"),
    "an empty text": ("bad-value", '[context.regions.r]\nrequired = true\nrequired_message = " " # <-'),
    "a date for a text": ("wrong-type", "[context.regions.r]\ndescription = 2026-01-01 # <-"),
    "no pattern at all": ("bad-value", "[context.regions.r]\naccepts = [] # <-"),
    "a pattern that is none": ("bad-value", '[context.regions.r]\naccepts = [\n"image/*",\n"images", # <-\n]'),
    "a pattern that is no text": ("wrong-type", "[context.regions.r]\naccepts = [7] # <-"),
    "a region that is no table": ("wrong-type", '[context.regions]\nr = "pinned" # <-'),
    "regions that are no table": ("wrong-type", "[context]\nregions = [] # <-"),
    "a context that is no table": ("wrong-type", 'context = "x" # <-'),
    "a name with blanks around it": ("bad-value", '[context.regions]\n" r" = {} # <-'),
    "a name that is empty": ("bad-value", '[stages.""] # <-'),
    "an unknown mode": ("bad-value", '[stages.s]\nmode = "automatic" # <-'),
    "an unknown condition": (
        "bad-value",
        '[stages.s]\n[stages.s.transitions.t]\ncondition = "sometimes" # <-\n[stages.t]',
    ),
    "an unknown transform": (
        "bad-value",
        '[stages.s]\n[stages.s.transitions.t]\ntransform = "squash" # <-\n[stages.t]',
    ),
    "an unknown permission": ("bad-value", '[tool_permissions]\nshell = "yes" # <-'),
    "a list that is text": ("wrong-type", '[stages.s]\navailable_tools = "shell" # <-'),
    "iterations below nothing": ("bad-value", "[stages.s]\nmax_iterations = -1 # <-"),
    "visits below nothing": ("bad-value", "[stages.s]\nmax_revisits = -1 # <-"),
    "workers below nothing": ("bad-value", '[stages.s]\nmode = "fan_out"\nworker_query = "x"\nmax_workers = -2 # <-'),
    "an unknown end for failed workers": (
        "bad-value",
        '[stages.s]\nmode = "fan_out"\nworker_query = "x"\non_worker_failure = "retry" # <-',
    ),
    "a ceiling of routing below nothing": (
        "bad-value",
        "[stages.s.tool_routing.max_result_tokens_per_tool]\nread_file = -1 # <-",
    ),
    "a rule of routing that is neither a name nor a table": (
        "wrong-type",
        "[stages.s.tool_routing.overrides]\nread_file = 3 # <-",
    ),
    "attempts of a gate below nothing": (
        "bad-value",
        '[stages.s]\n[stages.s.transitions.t.gate]\nrequire_regions = ["task"]\nmax_attempts = -1 # <-\n[stages.t]',
    ),
    "an amount below nothing": ("bad-value", "[budget]\nmax_cost_usd = -0.5 # <-"),
    "an amount that is no number": ("bad-value", '[budget]\nmax_cost_usd = "much" # <-'),
    "an amount that is a flag": ("wrong-type", "[budget]\nmax_cost_usd = true # <-"),
    "an amount of a billion digits": ("bad-value", "[budget]\nmax_cost_usd = '1e999999999' # <-"),
    "a share of a million digits": ("bad-value", f"[context.regions.r]\nbudget = '{'9' * 1_000_000}%' # <-"),
    "an amount without end": ("bad-value", "[budget]\nmax_cost_usd = inf # <-"),
    "a time of nothing": ("bad-value", "[budget]\nmax_wall_s = 0 # <-"),
    "a time that is no number": ("bad-value", "[budget]\nmax_wall_s = nan # <-"),
    "a time in words": ("wrong-type", '[budget]\nmax_wall_s = "1h" # <-'),
    "a temperature below nothing": ("bad-value", "[lanes.compaction]\ntemperature = -1 # <-"),
    "an unknown profile": ("bad-value", '[context.observations]\nprofile = "chatty" # <-'),
    "an unknown style of a question": (
        "bad-value",
        (
            '[stages.s]\nmode = "interactive_points"\n[[stages.s.interaction_points]]\nname = "a"\nprompt = "?"\n'
            'style = "x" # <-'
        ),
    ),
    "a parameter that JSON cannot say": (
        "wrong-type",
        "[stages.s.model]\nmodels = ['a:b']\nparameters = { until = [{ x = 2026-01-01 }] } # <-",
    ),
    "a parameter without end": ("bad-value", "[stages.s.model]\nmodels = ['a:b']\nparameters = { top_p = inf } # <-"),
    "a parameter beyond 64 bits": (
        "bad-value",
        "[stages.s.model]\nmodels = ['a:b']\nparameters = { seed = -99999999999999999999 } # <-",
    ),
    "a parameter nested without end": (
        "bad-value",
        f"[stages.s.model]\nmodels = ['a:b']\nparameters = {{ deep = {'[' * 70}{']' * 70} }} # <-",
    ),
    "parameters that are no table": ("wrong-type", "[stages.s.model]\nmodels = ['a:b']\nparameters = [1] # <-"),
    "an output pattern that is none": ("bad-value", '[stages.s.output_routing]\npictures = "task" # <-'),
}

MODELS = {
    "a model without its provider": ("bad-value", '[stages.s]\nmodel = "gpt" # <-'),
    "a model without its name": ("bad-value", '[stages.s]\nmodel = "openai:" # <-'),
    "a model that is a number": ("wrong-type", "[stages.s]\nmodel = 4 # <-"),
    "a candidate without provider": ("missing-key", '[stages.s.model]\nmodels = [{ model = "m" }] # <-'),
    "a candidate that is a number": ("wrong-type", "[stages.s]\nmodel = [1] # <-"),
    "a lane's model without provider": ("missing-key", '[compaction] # <-\nmodel = "m"'),
    "no candidates": ("bad-value", "[stages.s.model]\nmodels = [] # <-"),
    "an old spelling without provider": ("missing-key", '[stages.s.model] # <-\nmodel = "m"'),
    "an old spelling of the wrong type": (
        "wrong-type",
        '[stages.s.model]\nmodel = "m"\nprovider = 3 # <-',
    ),
    "an old spelling beside the new one": (
        "conflicting-keys",
        '[stages.s.model]\nprovider = "a"\nmodels = ["a:b"] # <-',
    ),
    "a temperature outside parameters": (
        "unknown-key",
        '[stages.s.model]\nmodels = ["a:b"]\ntemperature = 0.5 # <-',
    ),
    "instructions inside a model": ("unknown-key", '[stages.s.model]\nmodels = ["a:b"]\nsystem_prompt = "Hi" # <-'),
    "two spellings of a reply budget": (
        "conflicting-keys",
        '[stages.s.model]\nmodels = ["a:b"]\n[stages.s.model.parameters]\nmax_tokens = 1\nmax_output_tokens = 2 # <-',
    ),
    "two spellings of a timeout": (
        "conflicting-keys",
        '[stages.s.model]\nmodels = ["a:b"]\ntimeout_s = 1\nrequest_timeout_secs = 2 # <-',
    ),
    "a top-level model": ("agent-model-block-ignored", '[model] # <-\nprovider = "a"'),
    "two tables for one lane": (
        "conflicting-keys",
        "[compaction] # <-\nmax_summary_tokens = 5\n[lanes.compaction]\nmax_tokens = 6",
    ),
    "a model for the lane that has none": ("unknown-key", '[lanes.refresh]\nmodel = "a:b" # <-'),
}

SEEDS = {
    "a seed in no known form": (
        "region-seed-not-understood",
        '[context.regions.r]\nseed = { caller_input = "x" } # <-',
    ),
    "a seed that is a number": ("region-seed-not-understood", "[context.regions.r]\nseed = 7 # <-"),
    "a seed that is empty": ("region-seed-not-understood", '[context.regions.r]\nseed = "" # <-'),
    "a seed that is an empty table": ("region-seed-not-understood", "[context.regions.r]\nseed = {} # <-"),
    "a seed in two forms": (
        "region-seed-not-understood",
        '[context.regions.r]\nseed = { literal = "a", glob = "*" } # <-',
    ),
    "a seed of no files": ("bad-value", "[context.regions.r]\nseed = { files = [] } # <-"),
    "a fixed seed that is refreshed": (
        "unknown-key",
        '[context.regions.r]\nseed = { literal = "a", refresh = "each_stage" } # <-',
    ),
    "an unknown refresh": (
        "bad-value",
        '[context.regions.r]\nseed = { glob = "*", refresh = "often" } # <-',
    ),
    "a tool seed without a name": (
        "missing-key",
        "[context.regions.r]\nseed = { tools = [{ args = { a = 1 } }] } # <-",
    ),
    "a tool seed that is a number": ("wrong-type", "[context.regions.r]\nseed = { tool = 3 } # <-"),
    "an own file without a folder": (
        "path-without-folder",
        '[context.regions.r]\nseed = { files = ["a", "blueprint:b"] } # <-',
    ),
}

KEYS = {
    "an unknown table": ("unknown-key", "[stage.s] # <-"),
    "an unknown key of the agent": ("unknown-key", "agent.nam = 'x' # <-"),
    "an unknown key of the defaults": ("unknown-key", "[defaults]\nmodels = 'a:b' # <-"),
    "an unknown key of a region": ("unknown-key", '[context.regions.r]\nbugdet = "3%" # <-'),
    "an unknown key of a stage": ("unknown-key", "[stages.s]\nmax_iteration = 3 # <-"),
    "an unknown key beside regions": ("unknown-key", "[context.region.r] # <-"),
    "an unknown key of a stage's context": ("unknown-key", '[stages.s.context]\nrest = ["task"] # <-'),
    "an unknown key of routing": ("unknown-key", '[stages.s.tool_routing]\nregion = "task" # <-'),
    "an unknown key of a rule": (
        "unknown-key",
        '[stages.s.tool_routing.overrides]\nread_file = { regoin = "task" } # <-',
    ),
    "an unknown key of an edge": ("unknown-key", '[stages.s.transitions.t]\nhints = "x" # <-\n[stages.t]'),
    "an unknown key of a gate": (
        "unknown-key",
        '[stages.s.transitions.t]\ngate = { require_region = ["task"] } # <-\n[stages.t]',
    ),
    "an unknown hook": ("unknown-key", '[stages.s.hooks]\non_enter = "a.py" # <-'),
    "a table of another place": ("key-not-supported", "[sandbox] # <-\nkind = 'none'"),
    "a stage's table of another place": ("key-not-supported", "[stages.s.security] # <-"),
    "two spellings of pinned that differ": (
        "conflicting-keys",
        '[context.regions.r]\nkind = "custom"\nscript = "a.py"\npinned = true\npersistent = false # <-',
    ),
    "a second spelling of the wrong type": (
        "wrong-type",
        '[context.regions.r]\nkind = "custom"\nscript = "a.py"\npinned = true\npersistent = "no" # <-',
    ),
    "a question without its text": (
        "missing-key",
        '[stages.s]\nmode = "interactive_points"\n[[stages.s.interaction_points]] # <-\nname = "a"',
    ),
}

REGIONS = {
    "a key of another kind": ("key-without-effect", '[context.regions.r]\nkind = "pinned"\nmax_items = 3 # <-'),
    "custom without script": ("custom-without-script", '[context.regions.r] # <-\nkind = "custom"'),
    "custom in another language": (
        "script-language",
        '[context.regions.r]\nkind = "custom"\nscript = "a.rhai" # <-',
    ),
    "custom outside the folder": (
        "path-outside-folder",
        '[context.regions.r]\nkind = "custom"\nscript = "../a.py" # <-',
    ),
    "custom with a prefix": (
        "path-outside-folder",
        '[context.regions.r]\nkind = "custom"\nscript = "blueprint:a.py" # <-',
    ),
    "history without source": ("history-without-source", '[context.regions.r] # <-\nkind = "compact_history"'),
    "history of itself": (
        "history-without-source",
        '[context.regions.r]\nkind = "compact_history"\nsource_region = "r" # <-',
    ),
    "history of a region that is not there": (
        "unknown-region",
        '[context.regions.r]\nkind = "compact_history"\nsource_region = "q" # <-',
    ),
    "a tail that does not move": (
        "tail-not-rewritten",
        '[context.regions.r]\nvolatility = "grows"\nplacement = "tail" # <-',
    ),
    "a tail of messages": (
        "tail-not-movable",
        '[context.regions.r]\nkind = "sliding_window"\nplacement = "tail" # <-',
    ),
    "tracked files without their region": ("file-tracking-region", "[context.file_tracking]\nregion = 'r' # <-"),
    "tracked files in a region of another kind": (
        "file-tracking-region",
        "[context.file_tracking] # <-\n[context.regions.files]",
    ),
    "a soft cap above the hard one": ("observations-order", "[context.observations]\nsoft_cap_chars = 700000 # <-"),
    "a tail longer than the window": (
        "observations-order",
        "[stages.s.context.observations]\nprofile = 'chat'\nmin_tail_turns = 3 # <-",
    ),
    "a region of a child that is not there": (
        "unknown-region",
        (
            "[[transforms]]\nfrom_blueprint = 'trial'\nto_blueprint = 'b'\n"
            "mappings = [{ from_region = 'q', to_region = 'x' }] # <-"
        ),
    ),
    "fields without extract": (
        "transform-fields",
        (
            "[[transforms]]\nfrom_blueprint = 'a'\nto_blueprint = 'trial'\n"
            "mappings = [{ from_region = 'q', to_region = 'task', fields = ['a'] }] # <-"
        ),
    ),
    "a read path of another user": ("read-path-invalid", '[read_paths]\nallow = ["~root/x"] # <-'),
    "a read path with a step up inside": ("read-path-invalid", '[read_paths]\nallow = ["a/../b"] # <-'),
    "a read path of nothing": ("read-path-invalid", '[read_paths]\nallow = ["glob:"] # <-'),
    "a read path that is no regex": ("read-path-invalid", '[read_paths]\nallow = ["regex:/a("] # <-'),
    "a read path whose regex is relative": ("read-path-invalid", '[read_paths]\nallow = ["regex:a.*"] # <-'),
}

STAGES = {
    "an entry that is not there": ("unknown-stage", "agent.entry_stage = 'x' # <-\n[stages.s]"),
    "a required tool that is not there": (
        "required-tool-missing",
        '[stages.s]\nrequired_tools = ["ask_user_text"] # <-',
    ),
    "a deferred tool that is not there": ("deferred-tool-missing", '[stages.s]\ndeferred_tools = ["shell"] # <-'),
    "a deferred tool that a stage needs": (
        "deferred-tool-owed",
        '[stages.s]\navailable_tools = ["submit_output"]\ndeferred_tools = ["submit_output"] # <-',
    ),
    "an output without its tool": ("output-missing-submit-tool", "[stages.s]\nrequire_output = true # <-"),
    "a permission without its tool": (
        "orphan-stage-permission",
        '[stages.s]\navailable_tools = ["read_file"]\n[stages.s.tool_permissions]\nshell = "ask" # <-',
    ),
    "one tool twice in a table": (
        "tool-twice",
        '[tool_permissions]\nshell = "ask"\nbash = "deny" # <-',
    ),
    "a region to reset that is not there": ("unknown-region", '[stages.s.context]\nreset = ["notes"] # <-'),
    "a region to hide that is not there": ("unknown-region", '[stages.s.context]\nhide = ["notes"] # <-'),
    "a region that is never hidden": ("region-always-shown", '[stages.s.context]\nhide = ["conversation"] # <-'),
    "a region for parts that is not there": (
        "unknown-region",
        "[stages.s.output_routing]\n'image/*' = 'artwork' # <-",
    ),
    "a region for children that is not there": ("unknown-region", "[stages.s.seeds]\nbrief = 'plan' # <-"),
    "routing into nothing": (
        "routing-into-unseen-region",
        "[stages.s.tool_routing]\ndefault_region = 'notes' # <-",
    ),
    "routing into a region of another layout": (
        "routing-into-unseen-region",
        (
            "[context.regions.notes]\n[stages.s.context.regions.task]\n"
            "[stages.s.tool_routing.overrides]\nread_file = 'notes' # <-"
        ),
    ),
    "routing into a hidden region": (
        "routing-into-unseen-region",
        (
            "[context.regions.notes]\n[stages.s.context]\nhide = ['notes']\n"
            "[stages.s.tool_routing]\ndefault_region = 'notes' # <-"
        ),
    ),
    "a fan-out without worker": ("fan-out-worker", "[stages.s] # <-\nmode = 'fan_out'"),
    "a fan-out with two workers": (
        "fan-out-worker",
        "[stages.s] # <-\nmode = 'fan_out'\nworker_query = 'x'\nworker_agent = 'y'",
    ),
    "a worker stage that is not there": (
        "unknown-stage",
        "[stages.s]\nmode = 'fan_out'\nworker_stage = 'w' # <-",
    ),
    "a worker stage that is not allowed": (
        "worker-not-allowed",
        "[stages.s]\nmode = 'fan_out'\nworker_stage = 'w' # <-\n[stages.w]",
    ),
    "a merge stage that is not there": (
        "unknown-stage",
        "[stages.s]\nmode = 'fan_out'\nworker_query = 'x'\nmerge_stage = 'm' # <-",
    ),
    "results in a region that is not there": (
        "unknown-region",
        "[stages.s]\nmode = 'fan_out'\nworker_query = 'x'\nresults_region = 'm' # <-",
    ),
    "an own worker without a folder": (
        "path-without-folder",
        "[stages.s]\nmode = 'fan_out'\nworker_agent = 'blueprint:w' # <-",
    ),
    "keys of a fan-out in another mode": ("key-without-effect", "[stages.s]\nmax_workers = 3 # <-"),
    "questions in another mode": (
        "key-without-effect",
        "[[stages.s.interaction_points]] # <-\nname = 'a'\nprompt = '?'",
    ),
    "two questions of one name": (
        "duplicate-point",
        (
            "[stages.s]\nmode = 'interactive_points'\ninteraction_points = [\n{ name = 'a', prompt = '?' },\n"
            "{ name = 'a', prompt = '!' }, # <-\n]"
        ),
    ),
    "a choice of one": (
        "interaction-options",
        (
            "[stages.s]\nmode = 'interactive_points'\n[[stages.s.interaction_points]] # <-\nname = 'a'\nprompt = '?'\n"
            "style = 'multiple_choice'\noptions = ['yes']"
        ),
    ),
    "an answer that nobody can give": (
        "interaction-options",
        (
            "[stages.s]\nmode = 'interactive_points'\n[[stages.s.interaction_points]]\nname = 'a'\nprompt = '?'\n"
            "style = 'multiple_choice'\noptions = ['yes', 'no']\nabort_options = ['stop'] # <-"
        ),
    ),
    "choices for a free answer": (
        "key-without-effect",
        (
            "[stages.s]\nmode = 'interactive_points'\n[[stages.s.interaction_points]]\nname = 'a'\nprompt = '?'\n"
            "choices = ['yes', 'no'] # <-"
        ),
    ),
    "a document that is not there": (
        "unknown-region",
        (
            "[stages.s]\nmode = 'interactive_points'\n[[stages.s.interaction_points]]\nname = 'a'\nprompt = '?'\n"
            "document_region = 'draft' # <-"
        ),
    ),
    "a hook outside the folder": ("path-outside-folder", "[stages.s.hooks]\non_error = '/a.py' # <-"),
}
EDGES = {
    "an edge to nowhere": ("unknown-stage", "[stages.s.transitions.t] # <-"),
    "an edge to itself": (
        "self-edge-without-max-revisits",
        "[stages.s.transitions.s] # <-\n[stages.s.transitions.t]\n[stages.t]",
    ),
    "stuck without threshold": (
        "stuck-without-threshold",
        "[stages.s.transitions.t] # <-\ncondition = 'stuck'\n[stages.t]",
    ),
    "a threshold without stuck": (
        "threshold-without-stuck",
        "[stages.s.transitions.t]\nstuck_after_iterations = 3 # <-\n[stages.t]",
    ),
    "a threshold of nothing": (
        "bad-value",
        "[stages.s.transitions.t]\ncondition = 'stuck'\nstuck_after_iterations = 0 # <-\n[stages.t]",
    ),
    "custom that says nothing": (
        "transform-config-missing",
        "[stages.s.transitions.t]\ntransform = 'custom' # <-\n[stages.t]",
    ),
    "a transform of a region that is not there": (
        "unknown-region",
        "[stages.s.transitions.t]\ntransform = 'custom'\ntransform_config = { clear = ['notes'] } # <-\n[stages.t]",
    ),
    "a transform that contradicts itself": (
        "transform-contradiction",
        (
            "[context.regions.r]\n[stages.s.transitions.t]\ntransform = 'custom'\n"
            "transform_config = { carry = ['r'], clear = ['r'] } # <-\n[stages.t]"
        ),
    ),
    "a gate on a region that is not there": (
        "unknown-region",
        "[stages.s.transitions.t.gate]\nrequire_region_updated = 'notes' # <-\n[stages.t]",
    ),
    "a gate on regions that are not there": (
        "unknown-region",
        "[stages.s.transitions.t.gate]\nrequire_regions = ['task',\n'notes'] # <-\n[stages.t]",
    ),
    "a gate on items of what is no checklist": (
        "gate-needs-checklist",
        "[context.regions.r]\n[stages.s.transitions.t.gate]\nrequire_no_open_items = 'r' # <-\n[stages.t]",
    ),
    "a gate on items of the conversation": (
        "gate-needs-checklist",
        "[stages.s.transitions.t.gate]\nrequire_no_open_items = 'conversation' # <-\n[stages.t]",
    ),
    "a gate on changes that nobody can make": (
        "gate-needs-modifying-tool",
        "[stages.s.transitions.t.gate]\nrequire_modifications = true # <-\n[stages.t]",
    ),
    "a gate on a tool that is not there": (
        "gate-unknown-tool",
        (
            "[stages.s]\navailable_tools = ['write_file']\n[stages.s.transitions.t.gate]\n"
            "require_modifications = true\n"
            "tools = ['commit'] # <-\n[stages.t]"
        ),
    ),
    "stages that lead to one another for ever": (
        "no-way-to-end",
        "[stages.s] # <-\n[stages.s.transitions.t]\n[stages.t.transitions.s]",
    ),
    "a fan-out that comes back for ever": (
        "no-way-to-end",
        (
            "[stages.s] # <-\nmode = 'fan_out'\nworker_query = 'x'\nmerge_stage = 't'\ntransitions = {}\n"
            "[stages.t.transitions.s]"
        ),
    ),
    "an output that is never reached": (
        "output-unreachable",
        "[stages.s.transitions]\n[stages.o] # <-\nmode = 'output'",
    ),
}

OFFLINE = {
    "a step of nothing": ("offline-step", "[stages.s.offline]\npolicy = [\n{ sentences = 2 }, # <-\n]"),
    "a step of two things": (
        "offline-step",
        "[stages.s.offline]\npolicy = [{ say = 'a', extract = 'task' }] # <-",
    ),
    "arguments without a call": ("offline-step", "[stages.s.offline]\npolicy = [{ say = 'a', args = { x = 1 } }] # <-"),
    "a target without an extract": (
        "offline-step",
        "[stages.s]\navailable_tools = ['list_dir']\noffline.policy = [{ call = 'list_dir', into = 'list_dir' }] # <-",
    ),
    "a call of a tool that is not there": (
        "offline-unknown-tool",
        "[stages.s.offline]\npolicy = [{ call = 'list_dir' }] # <-",
    ),
    "an extract into a tool that is not there": (
        "offline-unknown-tool",
        "[stages.s.offline]\npolicy = [{ extract = 'task', into = 'submit_output' }] # <-",
    ),
    "an extract of a region that is not there": (
        "unknown-region",
        "[stages.s.offline]\npolicy = [{ extract = 'notes' }] # <-",
    ),
    "a way that no edge goes": (
        "offline-unknown-route",
        "[stages.s.offline]\npolicy = [{ route = 'later' }] # <-",
    ),
    "a source that is none": (
        "offline-source",
        (
            "[stages.s]\navailable_tools = ['read_file']\n"
            "offline.policy = [{ call = 'read_file', for_each = 'task' }] # <-"
        ),
    ),
    "an extract as a source": (
        "offline-source",
        (
            "[stages.s]\navailable_tools = ['read_file']\n"
            "offline.policy = [{ call = 'read_file', for_each = 'extract(task, 2)' }] # <-"
        ),
    ),
    "a source that comes later": (
        "offline-source",
        (
            "[stages.s]\navailable_tools = ['read_file']\n"
            "offline.policy = [{ call = 'read_file', for_each = 'result(1)' }] # <-"
        ),
    ),
    "a source that gives nothing": (
        "offline-source",
        (
            "[stages.s]\navailable_tools = ['read_file']\noffline.policy = [{ say = 'x' },\n"
            "{ call = 'read_file', for_each = 'result(1)' }] # <-"
        ),
    ),
    "a source in a region that is not there": (
        "unknown-region",
        (
            "[stages.s]\navailable_tools = ['read_file']\n"
            "offline.policy = [{ call = 'read_file', for_each = 'region(notes)' }] # <-"
        ),
    ),
    "a placeholder that is none": ("offline-placeholder", "[stages.s.offline]\npolicy = [{ say = 'Of {tsk}' }] # <-"),
    "a placeholder of a loop outside one": (
        "offline-placeholder",
        "[stages.s.offline]\npolicy = [{ say = '{item}' }] # <-",
    ),
    "pages of what is no call": ("offline-step", "[stages.s.offline]\npolicy = [{ say = 'a', pages = 2 }] # <-"),
    "a placeholder of a region that is not there": (
        "unknown-region",
        (
            "[stages.s]\navailable_tools = ['shell']\n"
            "offline.policy = [{ call = 'shell', args = { a = ['{region(notes)}'] } }] # <-"
        ),
    ),
    "a placeholder without its number": (
        "offline-source",
        "[stages.s.offline]\npolicy = [{ say = '{extract(task)}' }] # <-",
    ),
}

CASES = SINGLE_VALUES | MODELS | SEEDS | KEYS | REGIONS | STAGES | EDGES | OFFLINE


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused_once_and_on_its_line(name: str) -> None:
    id_, text = CASES[name]
    errors = [finding for finding in found_in(text) if finding.severity == "error"]
    assert [(error.id, error.line) for error in errors] == [(id_, *marked_lines(text))]


def test_a_model_is_named_by_its_key_and_shown_as_it_was_written() -> None:
    (error,) = [finding for finding in found_in("[stages.s]\nmodel = 'gpt'") if finding.severity == "error"]
    assert (error.line, error.column, error.key) == (4, 9, "stages.s.model")
    assert error.message.startswith("`model` is 'gpt'; write `\"provider:model\"`")


@pytest.mark.parametrize("name", CASES)
def test_its_place_begins_the_key_or_the_value_that_is_meant(name: str) -> None:
    text = HEAD + CASES[name][1]
    (error,) = [finding for finding in found_in(CASES[name][1]) if finding.severity == "error"]
    assert error.line
    assert error.column
    assert error.file == "blueprint.toml"
    line = text.split("\n")[error.line - 1]
    assert line[error.column - 2 : error.column - 1] in {"", " ", "[", ".", "{", "="} or error.column == 1
