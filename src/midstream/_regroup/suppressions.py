# ruff: noqa: RUF001 - Russian words are data
"""Abbreviations whose full stop ends no sentence, as Unicode CLDR lists them.

The sentence break suppressions of CLDR 46.1, unchanged, from the Unicode Consortium's
package ``cldr-segments-full`` 46.1.0 (npm); a low line stands for a space. Copyright
1991-2024 Unicode, Inc., under the Unicode License V3: see ``LICENSE-UNICODE`` beside
this file. To renew: the values of ``suppression`` in ``segments/*/suppressions.json``.
"""

CLDR = {
    "en": """
        A. A.D. A.M. A.S. AA. AB. AD. Abs. Act. Adj. Adv. All. Alt. Approx. As.
        Aug. B. B.V. By. C.F. C.O.D. Cap. Capt. Card. Col. Comm. Conn. Cont. D.
        D.A. D.C. DC. Dec. Def. Dept. Diff. Do. E. E.G. E.g. Ed. Est. Etc. Ex.
        Exec. F. Feb. Fn. Fri. G. Gb. Go. Hat. Hon.B.A. Hz. I. I.D. I.T. I.e.
        Id. In. Is. J.B. J.D. J.K. Jam. Jan. Job. Joe. Jun. K. K.R. Kb. L. L.A.
        L.P. Lev. Lib. Link. Long. Lt. Lt.Cdr. M. M.I.T. M.R. M.T. MR. Maj. Mar.
        Mart. Mb. Md. Mgr. Min. Misc. Mr. Mrs. Ms. Mt. N.V. N.Y. Nov. Nr. Num.
        O. OK. Ok. On. Op. Or. Org. P.M. P.O. P.V. PC. PP. Ph.D. Phys. Pro.
        Prof. Pvt. Q. R.L. R.T. Rep. Rev. S. S.A. S.A.R. S.E. S.p.A. Sep. Sept.
        Sgt. Sq. T. To. U. U.S. U.S.A. U.S.C. Up. VS. Var. X. Yr. Z. a.m. exec.
        pp. vs.
    """,
    "de": """
        A. A.M. Abs. Abt. Abw. Adj. Adr. Akt. Allg. Alt. App. Apr. Art. Aug.
        Ausg. Ausschl. B. Bed. Ben. Ber. Best. Bibl. C. Ca. Chin. Chr. Co. D.
        D._h. Dat. Dez. Di. Dim. Dipl.-Ing. Dipl.-Kfm. Dir. Do. Dr. Dtzd. Einh.
        Erf. Evtl. F. F.f. Fa. Fam. Feb. Fn. Folg. Forts._f. Fr. Frl. G. Gebr.
        Gem. Geograph. Ges. Gesch. Ggf. Hbf. Hptst. Hr. Hrn. Hrsg. I. Inc. Ing.
        Inh. Int. J. J.D. Jahrh. Jan. Jr. Kap. Kfm. Kl. Konv. Kop. L. Ltd. M.
        Max. Mi. Min. Mind. Mio. Mo. Mod. Mrd. Msp. N. Nov. Nr. O. Obj. Okt. Op.
        P. P.M. PIN. Pfd. Phys. Port. Prot. Proz. Qu. R. Rd. Reg. Reg.-Bez. Rel.
        Rep. S.A. Sa. Schr. Sek. Sep. Sept. So. Spezif. St. StR. Std. Str. T.
        Tel. Temp. Test. Trans. Tägl. U. U.S. U.S.A. U.U. U._U. Urspr.
        Ursprüngl. Verf. Vgl. W. Wg. Y. Z. Z._B. Z._Zt. Ztr. a.D. a.M. a.Rh.
        a.a.O. a.a.S. am. amtl. b. beil. d.J. d.Ä. e.V. e.Wz. e.h. ehem. eigtl.
        einschl. entspr. erw. ev. evtl. exkl. frz. geb. gedr. gek. gesch. gest.
        ggf. ggfs. hpts. i.A. i.B. i.H. i.J. i.R. i.V. inkl. jew. jhrl. k._u._k.
        k.u.k. kath. kfm. kgl. led. m.E. m.W. mtl. möbl. n._Chr. n.u.Z. näml.
        o.A. o.B. o.g. od. p.Adr. r. röm. röm.-kath. s. s.a. schles. schweiz.
        schwäb. sog. südd. tägl. u. u.A.w.g. u.U. u._Z. u.a. u.v.a. u.Ä. u.ä.
        v.Chr. v.H. v.R.w. v.T. v._Chr. v._H. v._u._Z. v.u.Z. verh. verw. vgl.
        z. z.B. z.Hd. z.Z. zzgl. österr.
    """,
    "fr": """
        All. C. Comm. D. DC. Desc. Inc. Jr. L. M. MM. Mart. Op. P. P.-D._G. P.O.
        Prof. S.A. S.M.A.R.T. U. U.S. U.S.A. Var. W. acoust. adr. anc. ann.
        anon. ap._J.-C. append. aux. av._J.-C. avr. broch. bull. cam. categ.
        coll. collab. config. dest. dict. dim. dir. doc. déc. encycl. exempl.
        fig. févr. gouv. graph. hôp. ill. illustr. imm. imprim. indus. janv.
        jeu. juil. lun. mar. mer. niv. nov. oct. quart. réf. sam. sept. symb.
        synth. syst. trav._publ. ven. voit. éd. édit. équiv. éval.
    """,
    "es": """
        A.C. AA. All. Ant. Av. Avda. Bien. C. C.P. C.S. C.V. CA. Col. Comm.
        Corp. Cía. D. DC. Da. Desc. Desv. Dr. Dra. Drs. Dto. Dª. Dña. Em. Emm.
        Exc. Excma. Excmas. Excmo. Excmos. Exma. Exmas. Exmo. Exmos. FF.CC.
        Fabric. Fr. H.P. Id. Ilma. Ilmas. Ilmo. Ilmos. Inc. JJ.OO. K. Kit. Korn.
        L. Lcda. Lcdo. Lda. Ldo. Lic. Ltd. Ltda. Ltdo. M. MM. Mons. Mr. Mrs.
        O.M. PP. R.D. R.U. RAM. RR.HH. Rdo. Rdos. Reg. Rev. Rol. Rvdmo. Rvdmos.
        Rvdo. Rvdos. SA. SS.AA. SS.MM. Sdad. Seg. Sol. Sr. Sra. Sras. Sres.
        Srta. Srtas. Sta. Sto. Trab. U.S. U.S.A. Var. Vda. a._C. a._e._c. abr.
        afma. afmas. afmo. afmos. ago. bco. bol. c/c. cap. cf. cfr. col. d._C.
        depto. deptos. dic. doc. dom. dpto. dptos. dtor. e._c. e.g. ed. ej. ene.
        feb. fig. figs. fund. hnos. jue. jul. jun. licda. licdo. lun. mar. may.
        mié. ms. mss. mtro. nov. ntra. ntro. oct. p.ej. prof. prov. sept. sras.
        sres. srs. ss. sáb. trad. v.gr. vid. vie. vs.
    """,
    "it": """
        C.P. Cfr. D. DC. Geom. Ing. L. Liv. Ltd. Mod. N.B. N.d.A. N.d.E. N.d.T.
        O.d.G. S.A.R. S.M.A.R.T. S.p.A. Sig. U.S. U.S.A. a.C. ag. all. arch.
        avv. c.c.p. d.C. d.p.R. div. dott. dr. fig. int. mitt. on. p. p.i. pag.
        rag. sez. tab. tav. ver. vol.
    """,
    "pt": """
        A.C. Alm. Av. Dir. Dr. Dra. Dras. Drs. E. Est. Exma. Exmo. Fr. Ilma.
        Ilmo. Jr. Ltd. Ltda. Mar. N.Sra. N.T. P.M. Pe. Ph.D. R. S. S.A. Sta.
        Sto. V.T. W.C. a.C. a.m. abr. abrev. adm. aer. ago. agric. anat. ap.
        apart. apt. arit. arqueol. arquit. astron. autom. aux. biogr. bras. cap.
        caps. cat. cel. cf. col. com. comp. compl. cont. contab. créd. cx. círc.
        cód. d.C. des. desc. dez. dipl. dir. div. doc. déb. ed. educ. elem.
        eletr. eletrôn. end. eng. esp. ex. f. fac. fasc. fem. fev. ff. fig. fil.
        filos. fisiol. fl. fot. fr. fís. geom. gram. gên. hist. ind. ingl. jan.
        jul. jun. jur. l. lat. lin. lit. liter. long. mai. mar. mat. matem. mov.
        máq. méd. mús. neol. nov. náut. obs. odont. odontol. org. organiz. out.
        p. p._ex. p.m. pal. pol. port. pp. pq. prod. prof. profa. pron. próx.
        psicol. pág. quím. r.s.v.p. ref. rel. relat. rep. res. rod. set. sociol.
        sup. séc. símb. tec. tecnol. tel. trad. transp. univ. vol. vs. álg. índ.
    """,
    "ru": """
        авг. апр. дек. до_н._э. кв. н._э. н.э. нояб. окт. отд. проф. руб. сент.
        тел. тыс. ул. февр. янв.
    """,
}
"""By language."""
