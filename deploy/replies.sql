CREATE DATABASE replies OWNER rubricflow;
