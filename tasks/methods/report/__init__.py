"""Reports of the research methods: tables of a run come in; pages, pictures and a summary go out.

- grader_figures, traces, graders: trained graders side by side, how single responses came by their grade, the page
- arm_figures, cases, arms: Edit's arms, wrong rollouts step by step and what became of them, the page
- task: the stage entry points
"""
