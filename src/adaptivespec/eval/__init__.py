"""Speed and quality measured together: tasks, graders, targets, runs, statistics, reports."""
