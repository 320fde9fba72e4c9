"""The operators that the graph itself needs: expressions over data nodes, constants, moves between places, branches."""
