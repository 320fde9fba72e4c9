"""A task in the form that the build engine takes: a source of its shards, and one stage for each of its Python steps.

| class | meaning |
| --- | --- |
| `TaskReference` | a task by name and the modules that register it: how workers find it |
| `TaskSource` | the shards of all splits; steps that are functions of a dataset stream while it reads |
| `StepUnit` | a Python step as a stage |
| `CachedExample` | the last stage: checks what is cached and counts its tokens and characters |
| `TaskSteps` | the stages as a graph, one output for each split |
| `SplitSteps` | the same for the records of one split, for an analysis |
"""
