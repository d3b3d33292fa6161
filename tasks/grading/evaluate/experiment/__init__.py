"""The tables of an experiment: arms (finished runs) in, tables and the main contrast in one sentence out.

tables          all tables that a file asks for, those of Rulers among them, the main contrast, and their page
arm             what one run gave, agreement with its interval, calls by response; rehearsals of several judges
gradeagentops   Tables 4 to 10 of GradeAgentOps
cases           its Table 11, and the effect of the order of responses
"""
